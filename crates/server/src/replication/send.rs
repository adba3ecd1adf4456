//! The primary's side of its replicas' connections: a task for each, which carries what `node::sending` says, and what a primary knows of them all.
//!
//! ```text
//! messages of the replica ──┐                       ┌──▶ messages to the replica, batches into its ring (`log_ring`)
//! groups just made durable ─┼──▶ node::sending ─────┼──▶ jobs, off this thread
//! clock, every 10 ms ───────┘                       └──▶ the end of the connection
//! ```
//! Left out on purpose: what is sent when, which the node decides.

use super::accept::{Asked, command, copy_both};
use super::archive::Archiving;
use super::bootstrap::disk;
use super::copy_both::{CopyBoth, broken};
use super::log_ring::{self, LogRing};
use super::members::Members;
use super::shared::Exposed;
use super::site::certifier;
use super::{Herald, Membership, holds, region};
use crate::connections::visitor::{Origin, Visitor, too_many};
use crate::connections::wire::{Stream, Wire};
use base::{Error, Oid, Position, Result, SqlState};
use env::Env;
use futures::stream::{FuturesOrdered, StreamExt};
use node::sending::{Do, Done, Event, Lag, Note, Sending};
use node::start_check::{Ahead, lost_log};
use node::{Follower, Node, OlderLog, Promoted, Role};
use parking_lot::Mutex;
use replica::proof::Claim;
use replica::ship::{Facts, Heard, Medium, Message, Peer as Standing, Step};
use sql::engine::CheckCancelled;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};
use wal::Known;

/// How often a replica hears something at least.
const TICK: Duration = Duration::from_millis(10);
/// Names of replicas remembered after they have gone.
const MOST_NAMES: usize = 64;

/// All replicas of this node.
pub struct Senders {
    node: Arc<Node>,
    env: Env,
    peers: Mutex<BTreeMap<u64, Peer>>,
    names: Mutex<BTreeSet<String>>,
    /// Replicas whose Hello was looked at, and none of it showed that log was lost here.
    greeted: Mutex<BTreeSet<String>>,
    /// Connections whose replica says that it is ahead, and has to show it.
    proving: Mutex<BTreeSet<u64>>,
    /// Replicas that said they are ahead and did not show it: this primary's end, and theirs.
    doubted: Mutex<BTreeMap<String, (Position, Position)>>,
    /// Replicas that are written down already.
    written: Mutex<Vec<Known>>,
    /// This node has lost log: why it does not serve.
    lost: watch::Sender<Option<Error>>,
    /// A term begins: nobody is served until it has.
    between_terms: AtomicBool,
    /// Where log is that the directory does not have any more.
    pub archive: Option<Arc<Archiving>>,
    /// Where replicas on this host can map the region.
    pub exposed: Option<Exposed>,
    /// Whether the log may go into the ring of a replica on this host.
    rings: bool,
    pub membership: Arc<Membership>,
    pub herald: Arc<Herald>,
    /// The way into the control plane.
    pub control: OnceLock<Arc<dyn Members>>,
    /// Batches that went this way, and that.
    in_ring: AtomicU64,
    in_messages: AtomicU64,
}

struct Peer {
    user: Oid,
    address: Option<SocketAddr>,
    listen: Option<SocketAddr>,
    lag: Arc<Mutex<Lag>>,
}

/// A connected replica, as seen now. Ages are microseconds.
pub struct Seen {
    pub follower: Follower,
    pub user: Oid,
    pub address: Option<SocketAddr>,
    /// Where it takes clients, as far as that is known.
    pub listen: Option<SocketAddr>,
    pub received_age: Option<i64>,
    pub persisted_age: Option<i64>,
    pub visible_age: Option<i64>,
}

impl Senders {
    /// `rings`: whether the log may go into the ring of a replica on this host.
    pub fn new(
        node: Arc<Node>,
        env: Env,
        archive: Option<Arc<Archiving>>,
        exposed: Option<Exposed>,
        rings: bool,
        membership: Arc<Membership>,
    ) -> Senders {
        membership.belongs(node.cluster(), node.heard_term());
        Senders {
            herald: Arc::new(Herald::new(node.clone())),
            membership,
            control: OnceLock::new(),
            node,
            env,
            peers: Mutex::default(),
            names: Mutex::default(),
            greeted: Mutex::default(),
            proving: Mutex::default(),
            doubted: Mutex::default(),
            written: Mutex::default(),
            lost: watch::channel(None).0,
            between_terms: AtomicBool::new(false),
            archive,
            exposed,
            rings,
            in_ring: AtomicU64::new(0),
            in_messages: AtomicU64::new(0),
        }
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Whether this replica has said how far it is, and is not ahead.
    pub fn has_greeted(&self, name: &str) -> bool {
        self.greeted.lock().contains(name)
    }

    /// Whether a replica is being asked to show that it is ahead.
    pub fn is_proving(&self) -> bool {
        !self.proving.lock().is_empty()
    }

    /// A replica holds `theirs` of this primary's own history, of which nothing is here above `ours`: this node serves nobody any more. Why.
    pub fn lose(
        &self,
        replica: &str,
        address: Option<String>,
        ours: Position,
        theirs: Position,
    ) -> Error {
        self.node.lose();
        // Who waits for replicas learns it.
        self.node.shipping().settle();
        let ahead = Ahead {
            replica: replica.to_owned(),
            address,
            ours,
            theirs,
        };
        let why = lost_log(&ahead, self.node.term());
        self.lost.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| why.clone());
            first
        });
        why
    }

    /// A replica says that it holds `theirs` of this primary's history, and has not shown it. Said aloud once for each claim; this node serves on.
    pub fn doubt(&self, replica: &str, ours: Position, theirs: Position, why: &str) {
        let claim = (ours, theirs);
        if self.doubted.lock().insert(replica.to_owned(), claim) == Some(claim) {
            return;
        }
        error!(
            %replica, %ours, %theirs,
            "this replica says that it holds log which this primary has lost, and does not show it: {why}. It is not believed, and does not \
             follow. Either this node has lost log, or that one is of another history: compare the two directories (canon verify) before one of them goes"
        );
    }

    /// Ready when this node has lost log; why it does not serve.
    pub async fn lost(&self) -> Error {
        let mut rx = self.lost.subscribe();
        let why = rx.wait_for(Option::is_some).await;
        why.expect("the sender is ours")
            .clone()
            .expect("waited for")
    }

    /// The same, now.
    pub fn has_lost(&self) -> Option<Error> {
        self.lost.borrow().clone()
    }

    /// A replica follows: it will be asked before this node serves again.
    fn know(&self, name: &str, listen: Option<SocketAddr>) {
        let known = Known {
            name: name.to_owned(),
            address: listen.map(|a| a.to_string()),
        };
        let mut written = self.written.lock();
        if written.contains(&known) || name.is_empty() || name.chars().any(char::is_control) {
            return;
        }
        match self.node.dir().know_replica(&known) {
            Ok(()) => {
                written.retain(|k| k.name != known.name);
                written.push(known);
            }
            Err(e) => warn!(replica = %name, "the replica could not be written down: {e}"),
        }
    }

    /// Batches that went into a replica's ring, and as messages.
    pub fn batches(&self) -> (u64, u64) {
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        (n(&self.in_ring), n(&self.in_messages))
    }

    /// Every connected replica.
    pub fn seen(&self) -> Vec<Seen> {
        let now = self.env.clock.unix_micros();
        let peers = self.peers.lock();
        let all = self.node.shipping().followers().into_iter();
        all.filter_map(|follower| {
            let p = peers.get(&follower.id)?;
            let lag = p.lag.lock();
            Some(Seen {
                user: p.user,
                address: p.address,
                listen: p.listen,
                received_age: lag.received.age(now),
                persisted_age: lag.persisted.age(now),
                visible_age: lag.visible.age(now),
                follower,
            })
        })
        .collect()
    }

    /// Whether this node may acknowledge and serve strong reads, as far as it leads a cluster that runs itself.
    #[inline]
    pub fn may_serve(&self) -> bool {
        self.control.get().is_none_or(|m| m.may_serve())
    }

    /// See [`Members::together`].
    pub fn together(&self) -> Option<super::members::Together> {
        self.control.get()?.together()
    }

    /// See [`Members::may_promote`].
    pub fn may_promote(&self, check_cancelled: CheckCancelled<'_>) -> Result<()> {
        let control = self.control.get();
        control.map_or(Ok(()), |m| m.may_promote(check_cancelled))
    }

    /// Names of the connected replicas, and whether each holds a read lease now.
    pub fn lends(&self) -> Vec<(String, bool)> {
        let (now, shipping) = (self.env.clock.boot_nanos(), self.node.shipping());
        let all = shipping.followers().into_iter().filter(|f| f.member);
        all.map(|f| (f.name, shipping.lends_to(f.id, now)))
            .collect()
    }

    /// Names of replicas since the start, and whether they are connected.
    pub fn known(&self) -> Vec<(String, bool)> {
        let now = self.node.shipping().followers();
        let is_there = |name: &String| now.iter().any(|f| f.name == *name);
        let names = self.names.lock();
        names.iter().map(|n| (n.clone(), is_there(n))).collect()
    }

    /// Leads again, in the term that was named, or in one that no other node draws.
    pub fn lead_again_as(
        &self,
        named: Option<u64>,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Promoted> {
        // No connection of the old term may carry a commit of the new one: replicas would take it for one of the old.
        self.between_terms.store(true, Ordering::SeqCst);
        let alone = loop {
            if self.peers.lock().is_empty() {
                break Ok(());
            }
            if let Err(e) = check_cancelled() {
                break Err(e);
            }
            self.env.clock.sleep(Duration::from_millis(2));
        };
        let led = alone.and_then(|()| self.node.lead_again(named, check_cancelled));
        self.between_terms.store(false, Ordering::SeqCst);
        led.inspect(|p| self.membership.hears(p.term))
    }

    /// Leads again after a hand-over that came to nothing.
    ///
    /// `forget`: the primary of the newer term that this node has heard of is lost, and with it what it alone has committed.
    pub fn lead_again(&self, forget: bool, check_cancelled: CheckCancelled<'_>) -> Result<String> {
        let heard = self.membership.known();
        let deposed = self.node.is_deposed();
        if deposed && !forget {
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("there is a primary of a newer term, {heard}, which this node has heard of"),
            )
            .hint("Start this node with --replica-of that one. If it is lost for good: canon promote --forget-term --newer-primary-is-down."));
        }
        let heir = self.node.dir().sealed_for().map_err(disk)?;
        let Promoted { term, start } = self.lead_again_as(None, check_cancelled)?;
        if deposed {
            let report = format!(
                "Leading again: term {term} begins after {start}. What the primary of term {heard} has committed is not part of the history: \
                 should it come back, start it with --replica-of this one."
            );
            warn!("{report}");
            return Ok(report);
        }
        let heir = heir.unwrap_or_else(|| "another node".into());
        let report = format!(
            "Leading again: term {term} begins after {start}; nothing is lost. This node had handed over to {heir}: \
             should {heir} come back, start it with --replica-of this one."
        );
        info!("{report}");
        Ok(report)
    }

    /// A node has proven who it is, and says what it knows.
    pub fn told(&self, claim: &Claim) {
        if claim.cluster != self.node.cluster() || claim.term <= self.membership.known() {
            return;
        }
        info!(node = %claim.node, term = claim.term, "a node has told of a newer term");
        let Some(following) = self.node.following() else {
            return self.depose(claim.term);
        };
        // The primary that is followed counts no more for reads that must be new.
        if let Err(e) = self.node.dir().hear(claim.term) {
            return warn!("the newer term could not be written down: {e}");
        }
        self.membership.hears(claim.term);
        following.heard_of(claim.term);
    }

    /// A newer term exists somewhere: nothing may be acknowledged here any more.
    pub fn depose(&self, term: u64) {
        self.membership.hears(term);
        if self.node.depose(term) {
            warn!(
                term,
                "there is a primary of a newer term; this node takes no more writes"
            );
        }
    }
}

/// Serves a replica that has logged in, until it goes.
pub async fn serve<S: Stream>(
    wire: &mut Wire<S>,
    senders: &Arc<Senders>,
    origin: &Origin,
    visitor: Visitor,
) -> Result<()> {
    let asked = command(wire).await?;
    if asked != Asked::Log && senders.node.is_held() {
        return Err(Error::new(
            SqlState::CANNOT_CONNECT_NOW,
            "this primary does not serve: it asks its replicas how far they are, or has lost log",
        ));
    }
    if asked != Asked::Log && visitor.member.is_none() {
        return Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            "only a node that proves that it has the cluster's secret reads the region, has snapshots held and commits certified",
        ));
    }
    if asked != Asked::Log && visitor.full {
        return Err(too_many());
    }
    let leads = || senders.may_serve();
    match asked {
        Asked::Region => {
            let exposed = senders.exposed.as_ref();
            return region::serve(wire, senders.node.region(), exposed, leads).await;
        }
        Asked::Holds => return holds::serve(wire, &senders.node, leads).await,
        Asked::Commits => {
            let site = visitor.member.as_deref().unwrap_or_default().into();
            return certifier::serve(copy_both(wire).await?, &senders.node, &site, leads).await;
        }
        Asked::Log => {}
    }
    if senders.node.role() == Role::Replica {
        return Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "this node is a replica itself and ships nothing",
        )
        .hint("Follow its primary."));
    }
    let mut link = copy_both(wire).await?;
    if visitor.member.is_none() {
        link = link.of_stranger();
    }
    let hello = tokio::time::timeout(senders.node.silence(), link.next())
        .await
        .map_err(|_| broken("no Hello came"))??;
    let mut carrier = Carrier::new(senders.clone(), origin, visitor, hello).await?;
    let done = carrier.run(&mut link).await;
    if done.is_ok() {
        // A refusal is the last word.
        _ = tokio::time::timeout(Duration::from_secs(1), link.flush()).await;
    }
    done
}

/// Where others reach a replica that listens here and comes from there. Who listens everywhere is at the address that it comes from; of a
/// loopback only its own machine knows.
fn reached_at(listen: Option<SocketAddr>, from: Option<SocketAddr>) -> Option<SocketAddr> {
    let (listen, from) = (listen?, from?.ip().to_canonical());
    let here = listen.ip().to_canonical();
    match here {
        _ if here.is_unspecified() => Some(SocketAddr::new(from, listen.port())),
        _ if here.is_loopback() && !from.is_loopback() => None,
        _ => Some(SocketAddr::new(here, listen.port())),
    }
}

/// One connection.
struct Carrier {
    senders: Arc<Senders>,
    sending: Sending,
    member: bool,
    /// Where it takes clients, as far as that is known.
    reached: Option<SocketAddr>,
    todo: Vec<Do>,
    /// Under way, in the order in which they were asked for: so parts of a checkpoint go.
    jobs: FuturesOrdered<JoinHandle<Done>>,
    /// The replica's ring, if it is on this host; and up to where the next bell is to ring.
    ring: Option<LogRing>,
    bell: Option<u64>,
    /// The head of a batch.
    head: Vec<u8>,
    /// Why the connection is to end.
    end: Option<String>,
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.senders.peers.lock().remove(&self.sending.id());
        self.senders.proving.lock().remove(&self.sending.id());
    }
}

/// What this node has for a replica whose log ends at `last`.
async fn facts(node: Arc<Node>, older: Option<Arc<dyn OlderLog>>, last: Position) -> Result<Facts> {
    let look = move || {
        // Where the directory has what it needs the archive is not looked at: a bucket may take minutes to say that it is not there.
        let own = node.dir().log().reaches_back_to();
        let older = older.filter(|_| !matches!(own, Ok(Some(back)) if back <= last));
        node.facts(older.as_deref())
    };
    let found = tokio::task::spawn_blocking(look).await;
    found.map_err(|e| Error::internal(e.to_string()))?
}

impl Carrier {
    async fn new(
        senders: Arc<Senders>,
        origin: &Origin,
        visitor: Visitor,
        hello: Message,
    ) -> Result<Carrier> {
        let Visitor {
            user,
            listen,
            member,
            number,
            leases,
            acks,
            full: _,
        } = visitor;
        let Message::Hello {
            node: name, last, ..
        } = &hello
        else {
            return Err(broken("the first message is no Hello"));
        };
        let node = senders.node.clone();
        let address = origin.address.map_or("local".into(), |a| a.to_string());
        if member.as_ref().is_some_and(|proven| proven != name) {
            return Err(broken(
                "a node introduces itself by another name than it has proven",
            ));
        }
        let member = member.is_some();
        info!(replica = %name, %address, member, "a replica is here");
        if member && node.shipping().followers().iter().any(|f| f.name == *name) {
            warn!(replica = %name, "this replica has another connection: the two count as one replica, whatever stands behind them");
        }
        let peer = match member {
            true => Standing::Member,
            false => Standing::Stranger,
        };
        let older = senders.archive.clone().map(|a| a as Arc<dyn OlderLog>);
        let mut sending = Sending::new(node.clone(), older.clone(), peer, name, &address, *last);
        if leases && member {
            sending.knows_leases();
        }
        if acks {
            sending.knows_acks();
        }
        if let Some(number) = number {
            node.shipping().says_number(sending.id(), number);
        }
        // Clients are sent to members alone, and only members are asked and told.
        let reached = reached_at(listen, origin.address).filter(|_| member);
        if let Some(at) = reached {
            let herald = senders.herald.clone();
            tokio::task::spawn_blocking(move || herald.know(&at.to_string()));
        }
        let known = Peer {
            user,
            address: origin.address,
            listen: reached,
            lag: sending.lag().clone(),
        };
        senders.peers.lock().insert(sending.id(), known);
        if member {
            let mut names = senders.names.lock();
            if names.len() < MOST_NAMES {
                names.insert(name.clone());
            }
        }
        let mut carrier = Carrier {
            sending,
            member,
            reached,
            todo: Vec::new(),
            jobs: FuturesOrdered::new(),
            ring: None,
            bell: None,
            head: Vec::new(),
            end: None,
            senders,
        };
        if carrier.senders.between_terms.load(Ordering::SeqCst) {
            return Err(changing_term());
        }
        let facts = facts(node, older, *last).await?;
        let accepted = carrier.sending.greet(hello, facts, &mut carrier.todo);
        let name = carrier.sending.name().to_owned();
        if member && accepted {
            let (senders, name) = (carrier.senders.clone(), name.clone());
            let known = move || senders.know(&name, reached);
            _ = tokio::task::spawn_blocking(known).await;
        }
        match carrier.sending.is_proving() {
            true => carrier.senders.proving.lock().insert(carrier.sending.id()),
            false => member && carrier.senders.greeted.lock().insert(name),
        };
        Ok(carrier)
    }

    fn event(&mut self, e: Event, pending: usize) {
        self.sending.handle(e, pending, &mut self.todo);
    }

    async fn run<S: AsyncRead + AsyncWrite>(&mut self, link: &mut CopyBoth<S>) -> Result<()> {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let node = self.senders.node.clone();
        let moved = &node.shipping().moved;
        let mut version = moved.version();
        loop {
            if self.senders.between_terms.load(Ordering::SeqCst) {
                return Err(changing_term());
            }
            self.obey(link)?;
            if let Some(why) = self.end.take() {
                info!(replica = %self.sending.name(), "{why}");
                return Ok(());
            }
            let gathers = self.gathers();
            tokio::select! {
                heard = hear(link, self.member) => match heard? {
                    Some(Heard::Message(m)) => self.event(Event::Message(m), link.pending()),
                    Some(Heard::Medium(Medium::Offer { name })) => self.offered(name, link),
                    Some(Heard::Medium(_)) => return Err(broken("a word about a ring that a replica does not say")),
                    None => self.event(Event::Taken, link.pending()),
                },
                Some(done) = self.jobs.next(), if !self.jobs.is_empty() => {
                    let done = done.map_err(|e| Error::internal(e.to_string()))?;
                    self.event(Event::Done(done), link.pending());
                }
                v = moved.since(version), if Sending::has_room(link.pending()) => {
                    version = v;
                    self.event(Event::Moved, link.pending());
                }
                () = tokio::time::sleep(gathers.unwrap_or_default()), if gathers.is_some() && Sending::has_room(link.pending()) => {
                    self.event(Event::Moved, link.pending());
                }
                _ = every.tick() => self.event(Event::Time, link.pending()),
            }
        }
    }

    /// How long what has gathered for the replica may still wait.
    fn gathers(&self) -> Option<Duration> {
        let due = self.sending.due()?;
        let now = self.senders.env.clock.monotonic_nanos();
        Some(Duration::from_nanos(due.saturating_sub(now)))
    }

    /// Does what the node says.
    fn obey<S: AsyncRead + AsyncWrite>(&mut self, link: &mut CopyBoth<S>) -> Result<()> {
        for d in std::mem::take(&mut self.todo) {
            match d {
                Do::Send(m) => {
                    self.ring_bell(link);
                    link.send(&m);
                }
                Do::Batch { step, group } => {
                    if !self.put(&step, group.as_bytes()) {
                        self.ring_bell(link);
                        link.send_with(|out| step.encode_batch(group.as_bytes(), out));
                    }
                }
                Do::Run(job) => self.jobs.push_back(tokio::task::spawn_blocking(job)),
                Do::Depose(term) => self.senders.depose(term),
                Do::Lost { ours, theirs } => {
                    let (name, address) = (self.sending.name(), self.reached);
                    let address = address.map(|a| a.to_string());
                    let why = self.senders.lose(name, address, ours, theirs);
                    warn!(replica = %name, "{}", why.fields().message);
                    self.senders.proving.lock().remove(&self.sending.id());
                }
                Do::Unproven { ours, theirs, why } => {
                    let name = self.sending.name();
                    self.senders.doubt(name, ours, theirs, &why);
                    self.senders.greeted.lock().insert(name.to_owned());
                    self.senders.proving.lock().remove(&self.sending.id());
                }
                Do::Hint(term) => {
                    info!(
                        term,
                        "a stranger speaks of a newer term: the nodes that are known are asked"
                    );
                    self.senders.herald.hint();
                }
                Do::Note(note) => self.say(&note),
                Do::End(why) => self.end = Some(why),
                Do::Fail(e) => return Err(e),
            }
        }
        // One for all batches of this turn.
        self.ring_bell(link);
        Ok(())
    }

    fn say(&self, note: &Note) {
        let replica = self.sending.name();
        match note {
            Note::CaughtUp => info!(%replica, "caught up"),
            Note::AskedToHandOver => info!(%replica, "asked to hand over"),
            Note::HandedOver(last) => {
                info!(%last, "handed over: this node takes no more writes");
            }
            Note::Taken(by) => warn!(%replica, "not handed over: {by} was first"),
            Note::Undecided { decided, last } => {
                warn!(%decided, %last, "commits that too few replicas have wait for an answer");
            }
        }
    }

    /// The replica has made a ring.
    fn offered<S: AsyncRead + AsyncWrite>(&mut self, name: u64, link: &mut CopyBoth<S>) {
        // One for a connection.
        if self.senders.rings && self.member && self.ring.is_none() {
            self.ring = log_ring::find(name);
        }
        let taken = self.ring.as_ref().is_some_and(|r| r.name == name);
        info!(replica = %self.sending.name(), taken, "the replica offers a ring for the log");
        link.send_with(|out| Medium::Answer { name, taken }.encode(out));
    }

    /// Writes a batch into the replica's ring; whether it went in.
    fn put(&mut self, step: &Step, group: &[u8]) -> bool {
        self.head.clear();
        step.encode_batch(&[], &mut self.head);
        let ring = self.ring.as_mut();
        let end = ring.and_then(|r| r.ring.put(&self.head, group));
        self.bell = end.or(self.bell);
        let count = match end {
            Some(_) => &self.senders.in_ring,
            None => &self.senders.in_messages,
        };
        count.fetch_add(1, Ordering::Relaxed);
        end.is_some()
    }

    /// Says what is in the ring, before anything that comes after it.
    fn ring_bell<S: AsyncRead + AsyncWrite>(&mut self, link: &mut CopyBoth<S>) {
        if let Some(end) = self.bell.take() {
            link.send_with(|out| Medium::Bell { end }.encode(out));
        }
    }
}

/// What the other end says. None: it has taken some of what waits for it. A stranger for which much waits is not listened to: what it asks for would wait too, and
/// memory would grow for as long as it does not read. What a member says has to be heard, as commits wait for it.
async fn hear<S: AsyncRead + AsyncWrite>(
    link: &mut CopyBoth<S>,
    member: bool,
) -> Result<Option<Heard>> {
    match member || Sending::has_room(link.pending()) {
        true => link.next_as(Heard::decode).await.map(Some),
        false => link.write().await.map(|()| None),
    }
}

fn changing_term() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "a new term begins here")
}

#[cfg(test)]
mod tests;
