//! Open files of a node, which its store and its connections share.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Result;

/// Files other than connections: those of the store, and of the runtime.
const OTHER_FILES: u64 = 128;

/// Table files that the store keeps open.
pub(crate) const TABLES_MAX: usize = 64;

/// Other members whose connections fit. The read of a client opens one to each of them, and each of
/// them opens one for the read of a client of its own.
const MEMBERS: u64 = 5;

/// Files for each client.
const FILES_OF_CLIENT: u64 = 1 + 2 * MEMBERS;

const CLIENTS_MIN: u64 = 16;
const CLIENTS_MAX: u64 = 512;

/// Maximums of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) clients: usize,
    pub(crate) nodes: usize,
}

/// Raises the limit of open files of this process. Returns the connections that fit.
///
/// # Errors
///
/// If too few fit.
pub(crate) fn raise_limit() -> Result<Shares> {
    let enough = files_for(CLIENTS_MAX);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (current, possible) = (current.unwrap_or(enough), maximum.unwrap_or(enough).min(enough));
    if current < possible {
        let raised = Rlimit { current: Some(possible), maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return shares(possible);
        }
    }
    shares(current)
}

/// Returns the connections that fit into `files`.
fn shares(files: u64) -> Result<Shares> {
    let clients = files.saturating_sub(OTHER_FILES) / FILES_OF_CLIENT;
    if clients < CLIENTS_MIN {
        let least = files_for(CLIENTS_MIN);
        return Err(format!(
            "at most {files} files may be open, but a node needs {least}; raise the limit by \
             `ulimit -n {least}`"
        )
        .into());
    }
    let clients = clients.min(CLIENTS_MAX);
    Ok(Shares { clients: clients.try_into()?, nodes: (clients * MEMBERS).try_into()? })
}

const fn files_for(clients: u64) -> u64 {
    OTHER_FILES + clients * FILES_OF_CLIENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_limit_of_open_files() -> Result<()> {
        assert_eq!(shares(u64::MAX)?, Shares { clients: 512, nodes: 2560 });
        assert_eq!(shares(1024)?, Shares { clients: 81, nodes: 405 });
        assert_eq!(shares(files_for(CLIENTS_MIN))?.clients, 16);
        let error = shares(files_for(CLIENTS_MIN) - 1).expect_err("too few files");
        assert!(error.to_string().ends_with("`ulimit -n 304`"), "{error}");
        Ok(())
    }
}
