//! Root keys of encrypted stores, from a file.

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use sievedb::{BackupSet, KeyProvider, Options, RootKey, StaticKeys};

use crate::error::{Error, Result};

/// Environment variable with the path of the key file.
const VARIABLE: &str = "SIEVE_KEY_FILE";

static KEYS: OnceLock<Arc<dyn KeyProvider>> = OnceLock::new();

/// Root keys of the stores that a command opens or creates.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// File with the root keys of encrypted stores, also named by SIEVE_KEY_FILE. A line has the
    /// id of a key, a space, and 64 hexadecimal digits. The last key encrypts new files.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl KeyArgs {
    /// Loads the keys for the lifetime of the process.
    pub(crate) fn load(&self) -> Result<()> {
        let path = self.key_file.clone().or_else(|| env::var_os(VARIABLE).map(PathBuf::from));
        if let Some(path) = path {
            KEYS.get_or_init({
                let keys = read(&path)?;
                || Arc::new(keys)
            });
        }
        Ok(())
    }
}

/// Returns `true` if the user names keys.
pub(crate) fn are_loaded() -> bool {
    KEYS.get().is_some()
}

/// Adds the keys, if there are any.
pub(crate) fn with_keys(options: Options) -> Options {
    match KEYS.get() {
        Some(keys) => options.encryption(Arc::clone(keys)),
        None => options,
    }
}

/// Adds the keys to a backup set, if there are any.
pub(crate) fn for_set(set: BackupSet) -> BackupSet {
    match KEYS.get() {
        Some(keys) => set.encryption(Arc::clone(keys)),
        None => set,
    }
}

#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn read(path: &Path) -> Result<StaticKeys> {
    let read = std::fs::read(path);
    let text = read.map_err(|source| Error::Io { op: "read", path: path.to_owned(), source })?;
    let bad = |line| Error::BadKeyFile { path: path.to_owned(), line };
    let mut keys: Option<StaticKeys> = None;
    for (line, number) in String::from_utf8_lossy(&text).lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let (id, key) = parse(line).ok_or_else(|| bad(number))?;
        keys = Some(match keys {
            Some(keys) => keys.with(id, key),
            None => StaticKeys::new(id, key),
        });
    }
    keys.ok_or_else(|| bad(1))
}

/// Returns the id and the key of a line.
fn parse(line: &str) -> Option<(u64, RootKey)> {
    let (id, digits) = line.trim().split_once(' ')?;
    let digits = digits.trim();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some((id.parse().ok()?, RootKey::new(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_an_id_and_64_digits() {
        let digits = "0f".repeat(32);
        assert!(matches!(parse(&format!("7 {digits}")), Some((7, _))));
        for bad in ["", "7", &digits, &format!("x {digits}"), &format!("7 {digits}0"), "7 0g"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
