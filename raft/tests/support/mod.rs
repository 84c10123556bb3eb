//! A map that is replicated, for the tests.

use openraft::BasicNode;
use serde::{Deserialize, Serialize};
use sievedb::{Keyspace, Transaction};
use sievedb_raft::{Application, SnapshotStream};

/// A request to the map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    Put {
        key: String,
        value: String,
    },
    /// Puts `value` if the present one is `expected`.
    CompareAndSet {
        key: String,
        expected: Option<String>,
        value: String,
    },
}

/// The value before the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Response {
    pub(crate) before: Option<String>,
}

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Request,
        R = Response,
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = SnapshotStream,
);

/// The map in a keyspace.
pub(crate) struct Map(pub(crate) Keyspace);

impl Application<Types> for Map {
    fn keyspaces(&self) -> Vec<Keyspace> {
        vec![self.0.clone()]
    }

    fn apply(
        &mut self,
        transaction: &mut Transaction,
        request: Request,
    ) -> sievedb::Result<Response> {
        let (key, expected, value) = match request {
            Request::Put { key, value } => (key, None, value),
            Request::CompareAndSet { key, expected, value } => (key, Some(expected), value),
        };
        let before = transaction.get(&self.0, &key)?;
        let before = before.map(|before| String::from_utf8_lossy(&before).into_owned());
        if expected.is_none_or(|expected| expected == before) {
            transaction.insert(&self.0, key, value)?;
        }
        Ok(Response { before })
    }
}
