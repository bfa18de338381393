//! Two network namespaces with a link between them that has a delay, and perhaps a rate and a loss.
//!
//! Each namespace has a tun device. Two threads for each direction take the packets of one device
//! and give them to the other device when they are due. So all connections over the link are those
//! of the kernel, with its handshakes, windows and retransmissions.

mod packets;
mod traffic;

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::programs;
use crate::server::process_group_command;
use packets::{receive, send};
use traffic::SharedTraffic;
pub(super) use traffic::Traffic;

/// The properties of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkOptions {
    pub(super) round_trip: Duration,
    /// Bits per second in each direction; without it, as many as the machine can move.
    pub(super) rate: Option<u64>,
    /// One of so many packets with data is lost in each direction. The kernel passes several
    /// segments of a connection as one packet of up to 64 KiB, and loses all of them.
    pub(super) loss: Option<u64>,
    /// The port of the server to which one connection stalls in each run.
    pub(super) stalls: Option<u16>,
}

/// A link that exists until this is dropped.
pub(super) struct Link {
    client: Namespace,
    server: Namespace,
    is_over: Arc<AtomicBool>,
    traffic: SharedTraffic,
}

impl Link {
    /// The address of the server.
    pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);
    /// An address in the network of the server. No device has it.
    pub(super) const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 77);
    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

    /// Creates the namespaces, the devices and the threads.
    ///
    /// Errors: this process is not root, or the system has no tun devices.
    pub(super) fn new(options: LinkOptions) -> Result<Link> {
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let near = Arc::new(client.device(Self::CLIENT)?);
        let far = Arc::new(server.device(Self::SERVER)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let traffic = SharedTraffic::default();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (sender, due) = mpsc::sync_channel(PACKETS_MAX);
            let (from, to, over) = (from.clone(), to.clone(), is_over.clone());
            let traffic = traffic.direction(Arc::ptr_eq(&from, &near));
            thread::spawn(move || receive(&from, (options, sender), &traffic, &over));
            thread::spawn(move || send(&to, &due));
        }
        Ok(Link {
            client,
            server,
            is_over,
            traffic,
        })
    }

    /// Moves this thread to the client's end of the link until the result is dropped. Commands that
    /// the thread starts are there too.
    pub(super) fn enter(&self) -> Result<ClientEnd> {
        let outside = File::open("/proc/thread-self/ns/net").context("cannot open a namespace")?;
        move_to(&self.client.file()?).context("cannot enter a namespace")?;
        Ok(ClientEnd { outside })
    }

    /// A command that runs at the server's end.
    pub(super) fn server_command(&self, program: &str) -> Result<Command> {
        let mut command = process_group_command(programs::installed("nsenter", "util-linux")?);
        command.arg(format!("--net={}", self.server.path()));
        command.arg("--").arg(program);
        Ok(command)
    }

    /// Returns the traffic since the last call.
    pub(super) fn take_traffic(&self) -> Traffic {
        self.traffic.take()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// This thread is at the client's end of a link.
pub(super) struct ClientEnd {
    outside: File,
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        // The thread stays in the namespace if this fails, and finds no server any more.
        let _ = move_to(&self.outside);
    }
}

/// A network namespace, which exists as long as its process.
struct Namespace {
    process: Child,
}

impl Namespace {
    fn new() -> Result<Namespace> {
        let unshare = programs::installed("unshare", "util-linux")?;
        let mut command = process_group_command(unshare);
        command.args(["--net", "--", "sleep", "infinity"]);
        let process = command.stdin(Stdio::null()).spawn();
        let process = process.context("cannot create a network namespace")?;
        let namespace = Namespace { process };
        let own = std::fs::read_link("/proc/self/ns/net").context("cannot read a namespace")?;
        let deadline = Instant::now() + NAMESPACE_TIMEOUT;
        while std::fs::read_link(namespace.path()).is_ok_and(|other| other == own) {
            ensure!(Instant::now() < deadline, "unshare --net does not work");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(namespace)
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.process.id())
    }

    fn file(&self) -> Result<File> {
        File::open(self.path()).context("a network namespace has ended")
    }

    /// Creates a device in the namespace. A thread of its own does so, because it changes its
    /// namespace.
    fn device(&self, address: Ipv4Addr) -> Result<SyncDevice> {
        let file = self.file()?;
        let created = thread::spawn(move || -> io::Result<SyncDevice> {
            move_to(&file)?;
            let device = DeviceBuilder::new().name("floe0").mtu(MTU);
            let device = device.ipv4(address, PREFIX_LEN, None).offload(true);
            let device = device.build_sync()?;
            device.set_nonblocking(true)?;
            Ok(device)
        });
        let created = created.join();
        let created = created.map_err(|_| anyhow::anyhow!("the device thread panicked"))?;
        created.context("cannot create a tun device; it needs root and /dev/net/tun")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn move_to(namespace: &File) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(
        std::os::fd::AsFd::as_fd(namespace),
        kind,
    )?)
}

/// The usual size of packets in the internet.
const MTU: u16 = 1500;

/// Both ends are in one network of four addresses.
const PREFIX_LEN: u8 = 30;

/// More packets than a window of the kernel holds.
const PACKETS_MAX: usize = 16_384;

const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(10);
