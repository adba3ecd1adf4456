//! What lives as long as the process: the running member, and the server that it has now.

use super::Outsider;
use super::roads::Roads;
use super::words::{Identity, Watched, system};
use crate::config::Config;
use crate::replication::{Membership, Place, Primary, Target};
use ::cluster::consensus::{Carried, LOG};
use ::cluster::question::{Asked, Joined, Question};
use ::cluster::{Carry, Catalogue, Kind, NodeId, Phase, RunningMember, Terms, Timing};
use base::{Error, Result, SqlState};
use env::Env;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{info, warn};

/// The directory of the control plane in the data directory.
const DIR: &str = "control";
/// The file that makes a node a member.
const MEMBER: &str = "MEMBER";
/// There when the members have taken this node in.
const JOINED: &str = "JOINED";
/// There when the node is a member no more.
pub(super) const LEFT: &str = "LEFT";
/// There while the data here may lack what this node has acknowledged before: a copy was taken anew.
const INCOMPLETE: &str = "INCOMPLETE";

/// See the head of the file.
pub struct Seat {
    own: Weak<Seat>,
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) config: Config,
    pub(super) kind: Kind,
    /// This member's number, or the one that it is to have.
    pub(super) number: NodeId,
    /// Of a witness: what proves that it is of the cluster.
    pub(super) membership: OnceLock<Arc<Membership>>,
    pub(super) runtime: Handle,
    pub(super) roads: Roads,
    pub(super) member: OnceLock<RunningMember>,
    pub(super) identity: OnceLock<Identity>,
    /// Where it joins since it was adopted.
    pub(super) adopted: OnceLock<String>,
    /// A site asks to be taken in, in a task that lives as long as the process.
    pub(super) asks: AtomicBool,
    /// As long as it follows by hand: what guards it.
    pub(super) outsider: Mutex<Option<Arc<Outsider>>>,
    /// The server that runs now.
    pub(super) place: Mutex<Weak<Place>>,
    /// Where the replica that runs now looks for its primary.
    pub(super) target: Mutex<Option<Target>>,
    /// The phase in which the replica here was told to follow last.
    pub(super) followed: Mutex<Option<Phase>>,
    /// One change of role, or one promise, at a time.
    pub(super) changing: Mutex<()>,
    /// One brings the server to what the members agree on at a time.
    pub(super) fits: Mutex<()>,
    /// Only one founds the cluster.
    pub(super) founding: tokio::sync::Mutex<()>,
    /// At the consensus leader, one changes what is known of a member at a time.
    pub(super) noting: tokio::sync::Mutex<()>,
    /// The server is to start again, as what [`Seat::arrange`] says then.
    pub(super) moved: watch::Sender<bool>,
    /// The node is no member any more.
    pub(super) left: watch::Sender<bool>,
    /// The server is to end, for this reason.
    pub(super) ended: watch::Sender<Option<Error>>,
    /// The term for which a lease is needed; 0: none is.
    pub(super) guarded: AtomicU64,
    pub(super) incomplete: AtomicBool,
    pub(super) watched: Mutex<Watched>,
    /// Members that were not at the addresses where they were looked for: it was said.
    pub(super) astray: Mutex<BTreeSet<(NodeId, String)>>,
}

fn read_identity(dir: &Path) -> Result<Option<Identity>> {
    let path = dir.join(MEMBER);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| system(format!("{}: {e}", path.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(system(format!("{}: {e}", path.display()))),
    }
}

/// Takes all files away but this one, durably: it tells that it has left, and goes last.
fn remove_but(dir: &Path, stays: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() != stays {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::File::open(dir)?.sync_all()
}

/// Whether the node of this directory may take part. One that has left its cluster may not, unless it is to join again, under another number.
fn may_open(dir: &Path, again: bool) -> Result<()> {
    if !dir.join(LEFT).exists() {
        return Ok(());
    }
    if !again {
        let what = "this node has left its cluster, or was taken out of it";
        return Err(
            Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what).hint(format!(
                "Start it with --join to join again, or remove {} to start it alone.",
                dir.display()
            )),
        );
    }
    let removed = match std::fs::remove_file(dir.join(MEMBER)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => remove_but(dir, LEFT).and_then(|()| std::fs::remove_dir_all(dir)),
    };
    removed.map_err(system)
}

/// A member whose log is gone has forgotten its votes, and would give them again.
fn has_its_log(dir: &Path) -> Result<()> {
    let log = dir.join(LOG);
    if !dir.join(JOINED).exists() || log.exists() {
        return Ok(());
    }
    let what = format!(
        "the consensus log of this member is gone: {}",
        log.display()
    );
    Err(Error::new(SqlState::DATA_CORRUPTED, what).hint(
        "Take the member out (canon leave --member NAME, at another one), remove the directory and start the server with --join.",
    ))
}

/// Writes a file whole, durably, for this user only.
pub(super) fn keep(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    if !dir.exists() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
        // The new directory's name stands in the one above.
        if let Some(above) = dir.parent() {
            std::fs::File::open(above)?.sync_all()?;
        }
    }
    // Several tasks may write at the same time, each another file.
    let temporary = dir.join(format!("{name}.new"));
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&temporary)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, dir.join(name))?;
    std::fs::File::open(dir)?.sync_all()
}

impl Seat {
    /// Of the server that this configures. Call inside of the runtime that it is to live in.
    pub async fn open(config: &Config) -> Result<Arc<Seat>> {
        let dir = config.data.join(DIR);
        let identity = tokio::task::block_in_place(|| read_identity(&dir))?;
        if config.replica_of.is_some() {
            match identity {
                Some(member) if !member.adopted => {
                    let what = "this data directory belongs to a member of a cluster, which agrees with the others whom it follows";
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
                        .hint("Start it without --replica-of."));
                }
                Some(_) => warn!(
                    "--replica-of is not taken, and can be left out: this server was taken into a cluster, whose members agree whom it follows"
                ),
                None if config.site => info!(
                    "this site follows by hand (--replica-of): with --join in its place it follows whichever server the members of a cluster have made the primary"
                ),
                None => info!(
                    "this server follows by hand (--replica-of): --join in its place makes it a member of a cluster that runs itself, and canon cluster adopt takes it in while it runs"
                ),
            }
        }
        let kind = match config.site {
            true => Kind::Site,
            false => Kind::Server,
        };
        Seat::open_as(config, kind).await
    }

    /// The same of a member of this kind.
    pub(super) async fn open_as(config: &Config, kind: Kind) -> Result<Arc<Seat>> {
        let dir = config.data.join(DIR);
        let identity = tokio::task::block_in_place(|| {
            may_open(&dir, config.join.is_some())?;
            let identity = read_identity(&dir)?;
            has_its_log(&dir)?;
            Ok::<_, Error>(identity)
        })?;
        if let Some(identity) = &identity
            && identity.witness != (kind == Kind::Witness)
        {
            let what = match identity.witness {
                true => "this directory is a witness's: start it with canon witness",
                false => "this data directory is a server's: a witness needs one of its own",
            };
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        }
        if let Some(identity) = &identity
            && identity.site != (kind == Kind::Site)
        {
            let (what, how) = match identity.site {
                true => ("this data directory belongs to a site", "with --site"),
                false => (
                    "this data directory belongs to a member that is no site",
                    "without --site",
                ),
            };
            return Err(
                Error::new(SqlState::INVALID_PARAMETER_VALUE, what).hint(format!(
                    "Start it {how}. To make it the other, take it out first: canon leave."
                )),
            );
        }
        let incomplete = dir.join(INCOMPLETE).exists();
        let env = Env::os();
        // Zero is nothing's number, and half of all are plenty.
        let drawn = || (env.random.next_u64() >> 1).max(1);
        let number = identity.as_ref().map_or_else(drawn, |i| i.node);
        let seat = Arc::new_cyclic(|own| Seat {
            own: own.clone(),
            env,
            dir,
            config: config.clone(),
            kind,
            number,
            membership: OnceLock::new(),
            runtime: Handle::current(),
            roads: Roads::default(),
            member: OnceLock::new(),
            identity: OnceLock::new(),
            adopted: OnceLock::new(),
            asks: AtomicBool::new(false),
            outsider: Mutex::default(),
            place: Mutex::default(),
            target: Mutex::default(),
            followed: Mutex::default(),
            changing: Mutex::default(),
            fits: Mutex::default(),
            founding: tokio::sync::Mutex::default(),
            noting: tokio::sync::Mutex::default(),
            moved: watch::channel(false).0,
            left: watch::channel(false).0,
            ended: watch::channel(None).0,
            guarded: AtomicU64::new(0),
            incomplete: AtomicBool::new(incomplete),
            watched: Mutex::default(),
            astray: Mutex::default(),
        });
        if let Some(identity) = identity {
            seat.run(identity).await?;
        }
        Ok(seat)
    }

    /// Makes this node a member with this number, durably.
    pub(super) async fn become_member(self: &Arc<Seat>, identity: Identity) -> Result<()> {
        let bytes = serde_json::to_vec(&identity).map_err(system)?;
        tokio::task::block_in_place(|| keep(&self.dir, MEMBER, &bytes)).map_err(system)?;
        self.run(identity).await
    }

    async fn run(self: &Arc<Seat>, identity: Identity) -> Result<()> {
        let ways = Arc::new(Ways(self.clone()));
        let member = RunningMember::open(
            &self.env,
            &self.dir,
            identity.node,
            ways,
            self.clone(),
            self.config
                .failover_lease
                .map_or(Timing::default(), Timing::for_leases),
            Terms::default(),
        );
        let member = member.await.map_err(system)?;
        // A witness has no server that could start again.
        member.set_deaf(self.kind != Kind::Witness && self.place().is_none());
        let first = self.member.set(member).is_ok() && self.identity.set(identity).is_ok();
        if !first {
            return Err(system("this node is a member already"));
        }
        self.runtime.spawn(self.clone().watch_membership());
        let seat = self.clone();
        self.runtime.spawn(async move {
            let member = seat.member.get().expect("set above");
            let why = member.failed().await;
            // A member that says nothing any more would be missed only when it is needed.
            let what = format!("the consensus log of this member cannot be written: {why}");
            let e = Error::new(SqlState::IO_ERROR, what);
            seat.end(e.hint("The log is whole up to its last write: start the server again when the disk takes writes."));
        });
        Ok(())
    }

    /// The same, to be kept.
    pub(super) fn shared(&self) -> Option<Arc<Seat>> {
        self.own.upgrade()
    }

    /// The number of this member.
    pub fn me(&self) -> Option<NodeId> {
        self.identity.get().map(|i| i.node)
    }

    /// What the members agree on, as far as it is known here; none: this node is no member.
    pub fn catalogue(&self) -> Option<Catalogue> {
        let member = self.member.get()?;
        Some(member.consensus().catalogue().borrow().clone())
    }

    /// The same; at a start what this node's disk held, if that seems to be newer.
    pub(super) fn newest_catalogue(&self) -> Option<Catalogue> {
        let (agreed, member) = (self.catalogue()?, self.member.get()?);
        let expected = member.consensus().expected();
        let term = |c: &Catalogue| c.phase().map(Phase::term);
        Some(match term(expected) > term(&agreed) {
            true => expected.clone(),
            false => agreed,
        })
    }

    /// Other members reach this node from now on, or do not while the server starts again.
    pub fn hears(&self, hears: bool) {
        if let Some(member) = self.member.get() {
            member.set_deaf(!hears);
        }
        if !hears {
            // Nothing here keeps the server's parts alive from now on.
            *self.place.lock() = Weak::new();
        }
    }

    /// The server that runs now.
    pub(super) fn place(&self) -> Option<Arc<Place>> {
        self.place.lock().upgrade()
    }

    /// Where other members reach this one.
    pub(super) fn own_address(&self) -> Option<String> {
        let said = self.config.cluster_address.clone();
        let all = self.config.listen.iter();
        let reached: Vec<_> = all.filter(|a| !a.ip().is_unspecified()).collect();
        let far = reached.iter().find(|a| !a.ip().is_loopback());
        let own = far.or(reached.first()).map(|a| a.to_string());
        said.or(own)
    }

    /// A node at this address, asked as a member of the cluster.
    pub(super) fn node_at(&self, address: &str) -> Result<Primary> {
        let primary = Primary::parse(address)
            .map_err(|why| Error::new(SqlState::INVALID_PARAMETER_VALUE, why))?;
        let membership = match (self.place(), self.membership.get()) {
            (Some(place), _) => place.senders.membership.clone(),
            (None, Some(membership)) => membership.clone(),
            (None, None) => Arc::new(Membership::of(
                &self.named(Some(primary.clone())),
                &self.env,
            )?),
        };
        Ok(primary.as_member(membership))
    }

    pub(super) fn named(&self, replica_of: Option<Primary>) -> Config {
        Config {
            replica_of,
            ..self.config.clone()
        }
    }

    pub(super) fn as_primary(&self, catalogue: &Option<Catalogue>) -> Config {
        *self.target.lock() = None;
        let config = with_wanted(self.named(None), catalogue);
        let own = catalogue.as_ref().map_or(0, |c| self.wanted_alone(c));
        Config {
            synchronous_replicas: config.synchronous_replicas.max(own),
            ..config
        }
    }

    /// How many replicas this node waits for by its own settings: the founder of a cluster of one, as without a cluster.
    pub(super) fn wanted_alone(&self, catalogue: &Catalogue) -> u32 {
        let founder = self.identity.get().is_some_and(|i| i.joined.is_none());
        match founder && catalogue.is_alone(self.number) {
            true => self.config.synchronous_replicas,
            false => 0,
        }
    }

    /// Where this server is to join, if it is no member yet.
    pub(super) fn asked_to_join(&self) -> Option<String> {
        let joined = self.identity.get().and_then(|i| i.joined.clone());
        let adopted = || self.adopted.get().cloned();
        let said = || self.config.join.clone().filter(|_| !self.is_guest());
        joined.or_else(adopted).or_else(said)
    }

    /// The copy here is about to be replaced: until it has all that the primary had when it was followed again, this node testifies nothing. Whether it would
    /// have testified before.
    pub fn begin_copy(&self) -> Result<bool> {
        if self.identity.get().is_none() || self.incomplete.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        keep(&self.dir, INCOMPLETE, b"").map_err(system)?;
        Ok(true)
    }

    /// The copy is whole, or was not replaced after all.
    pub fn end_copy(&self) {
        match std::fs::remove_file(self.dir.join(INCOMPLETE)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                warn!("the mark of an incomplete copy stays: {e}");
            }
            _ => {
                self.incomplete.store(false, Ordering::SeqCst);
                info!("this copy is whole: the node counts for a fail-over again");
            }
        }
    }

    /// The server is to start again, as what [`Seat::arrange`] says.
    pub(super) fn start_again(&self) {
        self.moved.send_replace(true);
    }

    /// The members have taken this node in.
    pub(super) fn has_joined(&self) -> Result<()> {
        match self.was_joined() {
            true => Ok(()),
            false => tokio::task::block_in_place(|| keep(&self.dir, JOINED, b"")).map_err(system),
        }
    }

    /// Whether they ever did.
    pub(super) fn was_joined(&self) -> bool {
        self.dir.join(JOINED).exists()
    }

    /// Where nodes of this node's cluster may be, or of the one that it is to join; the best guess last.
    pub(super) fn doors(&self) -> Vec<String> {
        let known = self.member.get().map(|m| m.consensus().expected().clone());
        let mut doors = Vec::new();
        for catalogue in self.catalogue().into_iter().chain(known) {
            let others = catalogue.members().iter();
            let others = others.filter(|(id, _)| Some(**id) != self.me());
            doors.extend(others.map(|(_, m)| m.address.clone()));
        }
        doors.dedup();
        if self.is_guest() {
            doors.extend(self.guest_doors());
        }
        doors.extend(self.asked_to_join());
        doors
    }

    /// Where the consensus leader is, or that none is known; nothing: it is this node.
    pub(super) fn elsewhere(&self) -> Option<Joined> {
        let leader = self.member.get()?.consensus().leader();
        if leader.is_some() && leader == self.me() {
            return None;
        }
        let catalogue = self.catalogue().unwrap_or_default();
        let at = leader.and_then(|l| catalogue.members().get(&l));
        Some(at.map_or(Joined::Later, |m| Joined::Elsewhere(m.address.clone())))
    }

    /// The answer of the node at this address.
    pub(super) async fn question<T: DeserializeOwned>(
        &self,
        address: &str,
        question: &Question,
    ) -> Result<T> {
        let node = self.node_at(address)?;
        let answer = self.roads.ask(&node, None, &question.encode()).await?;
        serde_json::from_slice(&answer).map_err(system)
    }

    /// This node is no member, and was none: it has no number any more.
    pub(super) fn forget(&self) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(MEMBER))?;
        std::fs::remove_dir_all(&self.dir)
    }

    /// Ends the member.
    pub(super) async fn stop(&self) {
        if let Some(member) = self.member.get()
            && let Err(e) = member.stop().await
        {
            warn!("the control plane did not stop: {e}");
        }
    }

    /// The server is to end. The first reason counts.
    pub(super) fn end(&self, why: Error) {
        self.ended.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(why);
            first
        });
    }

    /// Ready when the server is to end; why.
    pub async fn ended(&self) -> Error {
        let mut ended = self.ended.subscribe();
        let why = ended.wait_for(Option::is_some).await;
        why.expect("the sender is ours")
            .clone()
            .expect("waited for")
    }

    /// Ready when the server is to start again.
    pub async fn moved(&self) {
        let mut moved = self.moved.subscribe();
        // The sender's end is here.
        _ = moved.wait_for(|m| *m).await;
    }
}

/// So many replicas are waited for from the start on.
pub(super) fn with_wanted(config: Config, catalogue: &Option<Catalogue>) -> Config {
    match catalogue {
        Some(c) if c.phase().is_some() => Config {
            synchronous_replicas: u32::try_from(c.wanted()).unwrap_or(u32::MAX),
            ..config
        },
        _ => config,
    }
}

/// The way to the other members.
struct Ways(Arc<Seat>);

impl Carry for Ways {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        Box::pin(async move {
            let catalogue = self.0.catalogue().unwrap_or_default();
            let member = catalogue.members().get(&to);
            let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no member {to}"));
            let address = member.map(|m| m.address.clone()).ok_or_else(unknown)?;
            let node = self.0.node_at(&address).map_err(io::Error::other)?;
            let question = Asked::OfMember(&message).encode();
            let seat = self.0.clone();
            // The consensus gives a message up soon, on a busy machine before its connection is made. The task goes on, so that the next message finds
            // a connection.
            let way = seat.roads.way(&node, to).ok_or(io::ErrorKind::WouldBlock)?;
            let asked = self.0.runtime.spawn(async move {
                let _way = way;
                let answer = seat.roads.ask(&node, Some(to), &question).await;
                if let Err(e) = &answer {
                    seat.says_if_astray(to, &address, e);
                }
                answer
            });
            let answer = asked.await.map_err(io::Error::other)?;
            answer.map_err(io::Error::other)
        })
    }
}
