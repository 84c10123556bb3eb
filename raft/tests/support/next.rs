//! The replicated map of the example cluster, with the types of openraft 0.10.

use openraft_0_10::BasicNode;

#[expect(unreachable_pub, reason = "public in the cluster")]
#[path = "../../cluster/src/map.rs"]
mod map;

pub(crate) use map::{Map, Request, Response};

openraft_0_10::declare_raft_types!(
    pub(crate) Types: D = Request, R = Response, NodeId = u64, Node = BasicNode
);
