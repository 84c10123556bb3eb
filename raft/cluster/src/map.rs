//! The replicated map.

use std::fmt;

use serde::{Deserialize, Serialize};
use sievedb::{Keyspace, Transaction};
use sievedb_raft::Application;

/// A request to the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Stores a value.
    Put {
        /// The key.
        key: String,
        /// The new value.
        value: String,
    },
    /// Stores a value if the present one is the expected one.
    CompareAndSet {
        /// The key.
        key: String,
        /// The expected value; `None` if the key must be absent.
        expected: Option<String>,
        /// The new value.
        value: String,
    },
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, .. } => write!(f, "put {key}"),
            Self::CompareAndSet { key, .. } => write!(f, "compare and set {key}"),
        }
    }
}

/// The response to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The value before the request.
    pub before: Option<String>,
    /// `true` if the request has stored its value.
    pub stored: bool,
}

/// The map in a keyspace.
#[derive(Debug)]
pub struct Map(pub Keyspace);

impl Application for Map {
    type Request = Request;
    type Response = Response;

    fn keyspaces(&self) -> Vec<Keyspace> {
        vec![self.0.clone()]
    }

    fn apply(
        &mut self,
        transaction: &mut Transaction,
        _index: u64,
        request: Request,
    ) -> sievedb::Result<Response> {
        let (key, expected, value) = match request {
            Request::Put { key, value } => (key, None, value),
            Request::CompareAndSet { key, expected, value } => (key, Some(expected), value),
        };
        let before = transaction.get(&self.0, &key)?;
        let before = before.map(|before| String::from_utf8_lossy(&before).into_owned());
        let stored = expected.is_none_or(|expected| expected == before);
        if stored {
            transaction.insert(&self.0, key, value)?;
        }
        Ok(Response { before, stored })
    }
}
