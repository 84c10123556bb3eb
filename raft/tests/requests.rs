//! Requests that postcard cannot decode, or decodes as another request.

use std::{collections::HashMap, path::Path};

use openraft::{
    BasicNode, CommittedLeaderId, Entry, EntryPayload, LogId,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _},
};
use serde::{Deserialize, Serialize};
use sievedb::{Db, Keyspace, Transaction};
use sievedb_raft::{Application, LogStore, SnapshotStream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Request {
    /// Its decoded copy has another order of keys.
    Map(HashMap<u64, u64>),
    Skipped {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        value: Option<u64>,
        key: String,
    },
    SkippedZero {
        #[serde(skip_serializing_if = "is_zero", default)]
        first: u64,
        second: u64,
        key: String,
    },
    Untagged(Untagged),
    Flattened(Flattened),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u64),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Flattened {
    #[serde(flatten)]
    fields: HashMap<String, u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Request,
        R = (),
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = SnapshotStream,
);

struct Nothing;

impl Application for Nothing {
    type Request = Request;
    type Response = ();

    fn keyspaces(&self) -> Vec<Keyspace> {
        Vec::new()
    }

    fn apply(&mut self, _: &mut Transaction, _: u64, _: Request) -> sievedb::Result<()> {
        Ok(())
    }
}

fn open(dir: &Path) -> Result<LogStore<Types>> {
    let db = Db::open(dir.join("store"))?;
    Ok(sievedb_raft::open(&db, dir.join("snapshots"), Nothing)?.0)
}

#[tokio::test]
async fn a_request_that_postcard_cannot_decode_is_not_appended() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut log = open(dir.path())?;
    let entry = |index, request| Entry::<Types> {
        log_id: LogId::new(CommittedLeaderId::new(1, 0), index),
        payload: EntryPayload::Normal(request),
    };
    log.blocking_append([entry(0, Request::Map((0..100).map(|key| (key, key)).collect()))]).await?;
    let zero = Request::SkippedZero { first: 0, second: 0, key: "\0".to_owned() };
    for (name, request) in [
        ("skipped", Request::Skipped { value: None, key: "key".to_owned() }),
        ("skipped zero", zero),
        ("untagged", Request::Untagged(Untagged::Number(1))),
        ("flattened", Request::Flattened(Flattened { fields: HashMap::new() })),
    ] {
        let appended = log.blocking_append([entry(1, request)]).await;
        let refused = appended.err().map(|error| error.to_string());
        assert!(refused.is_some_and(|error| error.contains("entry 1")), "{name}");
        for _ in 0..2 {
            let state = log.get_log_state().await?;
            assert_eq!(state.last_log_id.map(|last| last.index), Some(0), "{name}");
            drop(log);
            log = open(dir.path())?;
        }
    }
    Ok(())
}
