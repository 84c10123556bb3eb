//! Addresses of nodes, on loopback or in network namespaces of their own.
//!
//! In namespaces each node has two interfaces: one to a bridge to the other nodes, which a
//! partition takes down, and one to the clients. Packets are lost then, as if a cable were cut. The
//! parent process must be root of its network namespace: run it by
//! `unshare --user --map-root-user --net`.

use std::{
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::Result;

/// The port of all nodes that have addresses of their own.
const PORT: u16 = 7000;

/// Places where nodes run.
#[derive(Debug)]
pub enum Places {
    /// At addresses of this machine. Nodes drop the requests that a partition would lose.
    Loopback(Vec<SocketAddr>),
    /// In network namespaces, each held by a process.
    Namespaces(Vec<Child>),
}

impl Places {
    /// Chooses free addresses for `count` nodes. On Linux they are in a network of this cluster, so
    /// that no other process takes the port of a node that is down.
    ///
    /// # Errors
    ///
    /// Errors of the operating system, or more than 254 nodes.
    pub fn loopback(count: usize) -> Result<Self> {
        /// Networks of this process.
        static NETWORKS: AtomicU32 = AtomicU32::new(0);

        // 127.0.0 is the network of other programs.
        let (process, number) = (process::id(), NETWORKS.fetch_add(1, Relaxed));
        let (second, third) = (1 + process % 254, (process / 254 + number) % 256);
        let bind = |node| {
            let own = Ipv4Addr::new(127, u8::try_from(second)?, u8::try_from(third)?, node);
            let address = if cfg!(target_os = "linux") { own } else { Ipv4Addr::LOCALHOST };
            Ok(TcpListener::bind((address, 0))?)
        };
        let nodes = 1..=u8::try_from(count)?;
        let listeners = nodes.map(bind).collect::<Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr);
        Ok(Self::Loopback(addresses.collect::<std::io::Result<_>>()?))
    }

    /// Creates namespaces for `count` nodes.
    ///
    /// # Errors
    ///
    /// If `ip`, `nsenter` or `unshare` is missing, or lacks permission.
    pub fn namespaces(count: usize) -> Result<Self> {
        run("ip link set lo up")?;
        let _left_by_an_earlier_cluster = run("ip link delete peers");
        run("ip link add peers type bridge")?;
        run("ip link set peers up")?;
        let mut holders = Vec::new();
        for node in 1..=count {
            let mut hold = Command::new("unshare");
            hold.args(["--net", "sh", "-c"]);
            // Ends with this process, which holds the other end of the pipe.
            hold.arg("ip link set lo up && echo ready && read -r _");
            let mut holder = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut ready = [0; 6];
            let output = holder.stdout.as_mut().ok_or("no output")?;
            output.read_exact(&mut ready)?;
            let pid = holder.id();
            let inside = format!("nsenter -t {pid} -n");
            for (kind, address, outside) in [
                ("p", format!("10.1.0.{node}/24"), None),
                ("c", format!("10.2.{node}.2/24"), Some(format!("10.2.{node}.1/24"))),
            ] {
                run(&format!("ip link add {kind}{node} type veth peer name i{kind}{node}"))?;
                run(&format!("ip link set i{kind}{node} netns {pid}"))?;
                run(&format!("{inside} ip addr add {address} dev i{kind}{node}"))?;
                run(&format!("{inside} ip link set i{kind}{node} up"))?;
                match outside {
                    Some(outside) => run(&format!("ip addr add {outside} dev {kind}{node}"))?,
                    None => run(&format!("ip link set {kind}{node} master peers"))?,
                }
                run(&format!("ip link set {kind}{node} up"))?;
            }
            holders.push(holder);
        }
        Ok(Self::Namespaces(holders))
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Loopback(addresses) => addresses.len(),
            Self::Namespaces(holders) => holders.len(),
        }
    }

    /// Returns the address of a node for the other nodes.
    #[must_use]
    pub fn peer_address(&self, node: u64) -> SocketAddr {
        match self {
            Self::Loopback(addresses) => addresses[index(node)],
            Self::Namespaces(_) => ([10, 1, 0, byte(node)], PORT).into(),
        }
    }

    /// Returns the address of a node for clients.
    #[must_use]
    pub fn client_address(&self, node: u64) -> SocketAddr {
        match self {
            Self::Loopback(_) => self.peer_address(node),
            Self::Namespaces(_) => ([10, 2, byte(node), 2], PORT).into(),
        }
    }

    /// Returns the address that a node listens on.
    #[must_use]
    pub fn listen_address(&self, node: u64) -> SocketAddr {
        match self {
            Self::Loopback(_) => self.peer_address(node),
            Self::Namespaces(_) => ([0, 0, 0, 0], PORT).into(),
        }
    }

    /// Checks that no process listens at the address of a node. Namespaces have no other processes.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub fn check_free(&self, node: u64) -> std::io::Result<()> {
        match self {
            Self::Loopback(_) => TcpListener::bind(self.listen_address(node)).map(drop),
            Self::Namespaces(_) => Ok(()),
        }
    }

    /// Returns the command that runs `program` at the place of a node. The process keeps its id.
    #[must_use]
    pub fn command(&self, node: u64, program: &Path) -> Command {
        match self {
            Self::Loopback(_) => Command::new(program),
            Self::Namespaces(holders) => {
                let mut command = Command::new("nsenter");
                command.args(["-t", &holders[index(node)].id().to_string(), "-n"]).arg(program);
                command
            }
        }
    }

    /// Connects a node to the others, or disconnects it. Returns `false` if the nodes must do that.
    ///
    /// # Errors
    ///
    /// If `ip` fails.
    pub fn connect(&self, node: u64, connected: bool) -> Result<bool> {
        if let Self::Loopback(_) = self {
            return Ok(false);
        }
        run(&format!("ip link set p{node} {}", if connected { "up" } else { "down" }))?;
        Ok(true)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        if let Self::Namespaces(holders) = self {
            for (node, holder) in (1..).zip(holders) {
                let _ = holder.kill();
                let _ = holder.wait();
                // Namespaces end some time after their last process.
                for kind in ["p", "c"] {
                    let _ = run(&format!("ip link delete {kind}{node}"));
                }
            }
        }
    }
}

fn index(node: u64) -> usize {
    usize::try_from(node).map_or(usize::MAX, |node| node.wrapping_sub(1))
}

fn byte(node: u64) -> u8 {
    u8::try_from(node).unwrap_or(u8::MAX)
}

/// Runs a command whose arguments have no spaces.
fn run(command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
