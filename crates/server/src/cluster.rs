//! A cluster in one process, for tests of applications: a primary and its replicas on loopback addresses, as real as any, and faults
//! on the links between them.
//!
//! ```text
//! application ──▶ members, each a whole server           replica ──▶ its link (a proxy here) ──▶ the primary
//! ```
//! A link can be slow ([`Cluster::delay`]), silent ([`Cluster::stall`]: bytes stay on their way, connections stay up) or broken
//! ([`Cluster::cut`]); [`Cluster::heal`] makes it good. Calls block; they may be made from a test with a runtime of its own or without.
//!
//! Left out on purpose: crashes that lose what was not synced. `kill -9` of a process does that; a member that is stopped here ends
//! in good order.

mod link;

use crate::config::{Config, Overrides};
use crate::replication::membership::FILE as SECRET;
use crate::replication::{Place, Primary, ReplicaLag};
use crate::start::Server;
use base::{Error, Result, SqlState};
use link::{Link, Weather};
use node::{House, Role};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// No call waits longer than this for a member.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running cluster. Dropping it stops every member.
pub struct Cluster {
    runtime: Option<Runtime>,
    members: Vec<Member>,
    primary: usize,
    directory: PathBuf,
    temporary: bool,
    /// Of all members: the threads that keep house, and one `max_memory`.
    house: Option<Arc<House>>,
}

/// One server, with the link that it follows over when it is a replica.
struct Member {
    config: Config,
    address: SocketAddr,
    link: Link,
    running: Option<Running>,
}

struct Running {
    stop: Option<oneshot::Sender<()>>,
    place: Arc<Mutex<Weak<Place>>>,
    up: watch::Receiver<bool>,
    ended: JoinHandle<Result<()>>,
    /// Why it ended by itself.
    why: Arc<Mutex<Option<Error>>>,
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what)
}

/// A loopback address that is free, for a server that will listen there, and again after a start. This process gets each only once.
///
/// Not one of those that the system gives away: it also takes the ports of outgoing connections from them, so one that was free
/// can be a client's when the server starts, and a client that tries again and again while nobody listens may reach itself.
pub fn free_address() -> Result<SocketAddr> {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes with neighbouring numbers begin far from each other.
    let start = std::process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let at = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from(([127, 0, 0, 1], (FIRST + at % COUNT) as u16));
        if std::net::TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(broken("no free port"))
}

/// One member's life, however often it has to start again.
async fn live(
    house: Arc<House>,
    config: Config,
    place: Arc<Mutex<Weak<Place>>>,
    up: watch::Sender<bool>,
    mut stop: oneshot::Receiver<()>,
) -> Result<()> {
    let mut restart = None;
    loop {
        let server = tokio::select! {
            s = Server::start_in(&house, &config, restart.take()) => s?,
            _ = &mut stop => return Ok(()),
        };
        *place.lock() = Arc::downgrade(&server.place);
        up.send_replace(true);
        tokio::select! {
            _ = &mut stop => {
                server.stop().await;
                return Ok(());
            }
            e = server.lost() => {
                up.send_replace(false);
                server.stop_at_once().await;
                return Err(e);
            }
            why = server.restart() => {
                up.send_replace(false);
                server.end().await?;
                restart = Some(why);
            }
        }
    }
}

impl Cluster {
    /// Starts a primary and this many replicas, and waits until all serve. `primary` configures every member as `canon start` would be;
    /// with `site` the replicas are sites; its addresses are not looked at, and its directory, if it has one, holds a directory per member and is kept.
    pub fn start(primary: Overrides, replicas: usize) -> Result<Cluster> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let temporary = primary.data.is_none();
        let directory = primary.data.clone().unwrap_or_else(|| {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = format!("canon-cluster-{}-{serial}", std::process::id());
            std::env::temp_dir().join(name)
        });
        let runtime = service::runtime()?;
        let mut cluster = Cluster {
            members: Vec::new(),
            primary: 0,
            directory,
            temporary,
            house: None,
            runtime: Some(runtime),
        };
        for i in 0..=replicas {
            let address = free_address()?;
            let link = {
                let _in = cluster.runtime().enter();
                Link::start(address)?
            };
            let flags = Overrides {
                data: Some(cluster.directory.join(format!("member-{i}"))),
                listen: Some(address.to_string()),
                http: None,
                unix_socket_directory: None,
                replica_of: (i > 0).then(|| link.address().to_string()),
                site: primary.site && i > 0,
                node_name: Some(format!("member-{i}")),
                cluster_secret_file: match i {
                    0 => primary.cluster_secret_file.clone(),
                    _ => Some(cluster.directory.join("member-0").join(SECRET)),
                },
                ..primary.clone()
            };
            let config = Config::load(&flags)?;
            if cluster.house.is_none() {
                cluster.house = Some(House::new(&env::Env::os(), config.max_memory)?);
            }
            cluster.members.push(Member {
                config,
                address,
                link,
                running: None,
            });
            let first = cluster.members[0].address;
            cluster.members[i].link.lead_to(first);
            cluster.start_member(i)?;
        }
        Ok(cluster)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there until it is dropped")
    }

    /// Members there are, running or not.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never: there is a primary.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The member that is the primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The others.
    pub fn replicas(&self) -> Vec<usize> {
        (0..self.len()).filter(|i| *i != self.primary).collect()
    }

    /// Where a member's clients connect, as `canon` to the database `canon`.
    pub fn address(&self, member: usize) -> SocketAddr {
        self.members[member].address
    }

    /// The same as a connection string.
    pub fn url(&self, member: usize) -> String {
        format!("postgresql://canon@{}/canon", self.address(member))
    }

    /// Starts a member that is not running, and waits until it serves.
    pub fn start_member(&mut self, member: usize) -> Result<()> {
        let m = &self.members[member];
        if m.running.is_some() {
            return Ok(());
        }
        let place = Arc::new(Mutex::new(Weak::new()));
        let (up_tx, up) = watch::channel(false);
        let (stop, stopped) = oneshot::channel();
        let house = self.house.clone().expect("made before the first member");
        let life = live(house, m.config.clone(), place.clone(), up_tx, stopped);
        let why = Arc::new(Mutex::new(None));
        let told = why.clone();
        let ended = self.runtime().spawn(async move {
            let r = life.await;
            *told.lock() = r.clone().err();
            r
        });
        self.members[member].running = Some(Running {
            stop: Some(stop),
            place,
            up,
            ended,
            why,
        });
        self.wait(&format!("member {member} does not serve"), |c| {
            c.place(member).is_some()
        })
    }

    /// Stops a member in good order; its data stay.
    pub fn stop_member(&mut self, member: usize) -> Result<()> {
        let Some(mut r) = self.members[member].running.take() else {
            return Ok(());
        };
        _ = r.stop.take().map(|s| s.send(()));
        let ended = self.block(r.ended);
        ended.map_err(|e| broken(e.to_string()))?
    }

    /// Runs a future of ours, from whatever thread.
    fn block<T: Send + 'static>(&self, f: impl Future<Output = T> + Send + 'static) -> T {
        let (tx, rx) = std::sync::mpsc::channel();
        self.runtime().spawn(async move { _ = tx.send(f.await) });
        rx.recv().expect("the cluster's runtime runs")
    }

    fn place(&self, member: usize) -> Option<Arc<Place>> {
        let r = self.members[member].running.as_ref()?;
        if !*r.up.borrow() {
            return None;
        }
        r.place.lock().upgrade()
    }

    fn serving(&self, member: usize) -> Result<Arc<Place>> {
        self.place(member)
            .ok_or_else(|| broken(format!("member {member} does not serve")))
    }

    fn wait(&self, what: &str, done: impl Fn(&Cluster) -> bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            for m in &self.members {
                if let Some(r) = m.running.as_ref().filter(|r| r.ended.is_finished()) {
                    let why = r.why.lock().as_ref().map(|e| format!(": {e}"));
                    let (name, why) = (&m.config.node_name, why.unwrap_or_default());
                    return Err(broken(format!("{what}: {name} has ended{why}")));
                }
            }
            if Instant::now() > until {
                return Err(broken(what));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// How far a replica is behind, by its own word; `None` when it does not serve or is the primary.
    pub fn lag(&self, member: usize) -> Option<ReplicaLag> {
        self.place(member)?.own()
    }

    /// Whether a replica hears its primary.
    pub fn is_connected(&self, member: usize) -> bool {
        let place = self.place(member);
        let follow = place.as_ref().and_then(|p| p.follow.as_ref());
        follow.is_some_and(|f| f.is_connected())
    }

    /// Waits until every running replica shows what the primary has published now.
    pub fn catch_up(&self) -> Result<()> {
        let to = self.serving(self.primary)?.node.marks().installed.get();
        self.wait("the replicas do not catch up", |c| {
            let mut running = c
                .replicas()
                .into_iter()
                .filter(|i| c.members[*i].running.is_some());
            running.all(|i| {
                c.place(i)
                    .is_some_and(|p| p.node.marks().published.get() >= to)
            })
        })
    }

    /// Everything between this replica and its primary takes so much longer, each way.
    pub fn delay(&self, member: usize, time: Duration) {
        self.members[member].link.set(Weather::Open(time));
    }

    /// Nothing arrives at this replica any more, nor from it; connections stay up.
    pub fn stall(&self, member: usize) {
        self.members[member].link.set(Weather::Silent);
    }

    /// The replica's connections break, and new ones are refused.
    pub fn cut(&self, member: usize) {
        self.members[member].link.set(Weather::Cut);
    }

    /// The replica hears everything and shows nothing new, until it is told to go on (`on` false).
    pub fn hold_replay(&self, member: usize, on: bool) -> Result<()> {
        let place = self.serving(member)?;
        let following = place.node.following();
        let f = following.ok_or_else(|| broken("it does not follow"))?;
        f.hold(on);
        Ok(())
    }

    /// The link is good again.
    pub fn heal(&self, member: usize) {
        self.members[member].link.set(Weather::Open(Duration::ZERO));
    }

    /// The primary hands over to this replica and follows it; the others follow it too. Nothing is lost. The report.
    pub fn switch_over(&mut self, to: usize) -> Result<String> {
        // After another change of the primary it may not have found the new one yet.
        self.wait("the replica does not hear its primary", |c| {
            let follow = c.place(to).and_then(|p| p.follow.clone());
            follow.is_some_and(|f| f.is_connected())
        })?;
        let report = self.promote(to, false)?;
        let old = self.primary;
        self.stop_member(old)?;
        self.lead_by(to);
        self.start_member(old)?;
        Ok(report)
    }

    /// The primary stops, and this replica takes over without it. The old primary does not run afterwards; started again
    /// ([`Cluster::start_member`]) it comes back as a replica. The report.
    pub fn fail_over(&mut self, to: usize) -> Result<String> {
        self.stop_member(self.primary)?;
        let report = self.promote(to, true)?;
        self.lead_by(to);
        Ok(report)
    }

    fn promote(&self, member: usize, force: bool) -> Result<String> {
        use embedded::engine::ClusterView;
        let place = self.serving(member)?;
        let (tx, rx) = std::sync::mpsc::channel();
        // It waits on its thread, which must be one of the runtime's.
        self.runtime().spawn(async move {
            let done = place.promote(force, PATIENCE, &|| Ok(()));
            drop(place);
            _ = tx.send(done);
        });
        let done = rx.recv().map_err(|_| broken("the promotion broke off"))?;
        let report = done?.ok_or_else(|| broken("the promotion did not end"))?;
        self.wait("the promoted member is no primary", |c| {
            c.place(member)
                .is_some_and(|p| p.node.role() == Role::Primary)
        })?;
        Ok(report)
    }

    /// Everybody else follows this member from now on.
    fn lead_by(&mut self, primary: usize) {
        self.primary = primary;
        let address = self.members[primary].address;
        for (i, m) in self.members.iter_mut().enumerate() {
            m.link.lead_to(address);
            m.config.replica_of = (i != primary).then(|| {
                let own = m.link.address().to_string();
                Primary::parse(&own).expect("an address")
            });
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for i in self.replicas().into_iter().chain([self.primary]) {
            if i < self.members.len() {
                _ = self.stop_member(i);
            }
        }
        if let Some(r) = self.runtime.take() {
            r.shutdown_background();
        }
        if self.temporary {
            _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}
