//! Places of connections: some for clients, and others for nodes, which clients cannot take.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The sender of the requests on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Node,
}

/// The free places of a server.
#[derive(Debug, Clone)]
pub(crate) struct Free {
    clients: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
}

impl Free {
    pub(crate) fn new(clients: usize, nodes: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { clients: places(clients), nodes: places(nodes) }
    }

    /// Waits for a place for a connection without a request, one for clients if there is one.
    pub(crate) async fn place(&self) -> Result<Place, AcquireError> {
        let (sender, permit) = tokio::select! {
            biased;
            permit = self.clients.clone().acquire_owned() => (Sender::Client, permit?),
            permit = self.nodes.clone().acquire_owned() => (Sender::Node, permit?),
        };
        let held = Arc::new(Mutex::new(Held { sender, _permit: permit, is_used: false }));
        Ok(Place { free: self.clone(), held })
    }
}

/// The place of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    free: Free,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    sender: Sender,
    _permit: OwnedSemaphorePermit,
    /// There was a request.
    is_used: bool,
}

impl Place {
    /// Moves the connection to a place for `sender`. Returns `false` if it is a client, and there
    /// is none.
    pub(crate) fn admit(&self, sender: Sender) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.is_used = true;
        if held.sender == sender {
            return true;
        }
        let free = match sender {
            Sender::Client => &self.free.clients,
            Sender::Node => &self.free.nodes,
        };
        match free.clone().try_acquire_owned() {
            Ok(permit) => *held = Held { sender, _permit: permit, is_used: true },
            Err(_) => return sender == Sender::Node,
        }
        true
    }

    /// Returns `true` if the connection has a place for nodes, and no request yet.
    pub(crate) fn is_unused_of_node(&self) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.sender == Sender::Node && !held.is_used
    }
}
