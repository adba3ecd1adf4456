//! What a primary keeps for its replicas: the newest groups in memory, who follows and how far, how much log they still need.
//!
//! The flusher leaves every group here after it is durable, so a replica never holds what the primary can lose. Groups are kept only
//! while somebody follows. A follower asks for what comes after the position that it has ([`Shipping::after`]); when that has left the memory
//! he reads the log's segments ([`Shipping::limit`] says up to where) and comes back. Nobody here ever waits for a follower.
//!
//! Acknowledgements go to the durability decider (`commit::Quorum`), and what it decides to the watermarks. Where replicas hold read leases
//! (`replica::lease`), nothing is published that one of them has not received: that is the ceiling of the watermarks.

use base::{Position, Watermarks};
use commit::{Acked, Quorum, Waiters};
use parking_lot::Mutex;
use replica::lease::{Ask, Asked, Grantor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use wal::{Group, LogPoint};

use crate::notice::Notice;

/// A durable group on its way to replicas.
#[derive(Debug)]
pub struct Shipped {
    /// Everything up to here came before it.
    pub after: Position,
    /// It holds everything above `after` up to here; positions without a commit included.
    pub upto: Position,
    pub group: Arc<Group>,
}

/// What comes after a position.
#[derive(Debug)]
pub enum Next {
    /// These, one after the other.
    Groups(Vec<Arc<Shipped>>),
    /// It left the memory: read the segments.
    Behind,
    /// Nothing yet.
    Nothing,
}

/// One follower, as the primary knows it.
#[derive(Clone, Debug)]
pub struct Follower {
    pub id: u64,
    pub name: String,
    /// It has proven that it is a node. Others are sent the log, and count for nothing.
    pub member: bool,
    /// Its number in a cluster that runs itself, if it has said one.
    pub number: Option<u64>,
    /// Where it connected from.
    pub address: String,
    /// Everything up to here has been given to the connection.
    pub sent: Position,
    pub acked: Acked,
    /// When the newest acknowledgement came, and how old the tick was that it answers, in microseconds of the clock.
    pub heard_micros: i64,
    pub echo_micros: i64,
    pub connected_micros: i64,
    /// bootstrap, catchup, streaming
    pub state: &'static str,
    /// Log above here is kept for it.
    pub needs: Position,
    /// Something there waits for log up to here.
    pub waits: Position,
}

#[derive(Default)]
struct State {
    recent: VecDeque<Arc<Shipped>>,
    bytes: usize,
    followers: BTreeMap<u64, Follower>,
    next_id: u64,
    limit: Option<LogPoint>,
}

/// Replicas whose acknowledgements count, by number, with the names that they count under; none: those of all nodes.
type Counted = Option<BTreeMap<u64, String>>;

/// The name under which this one counts; none: it does not. What it calls itself may have changed since it became a member.
fn counts_as<'a>(counted: &'a Counted, f: &'a Follower) -> Option<&'a str> {
    match counted {
        None => Some(&f.name),
        Some(all) => f.number.and_then(|n| all.get(&n)).map(String::as_str),
    }
}

/// See the head of the file.
pub struct Shipping {
    marks: Arc<Watermarks>,
    waiters: Arc<Waiters>,
    state: Mutex<State>,
    /// Bytes of groups kept in memory for followers.
    most: usize,
    quorum: Mutex<Quorum>,
    counted: Mutex<Counted>,
    /// See [`Shipping::ruled`].
    ruled: base::Watermark,
    /// Whether groups are kept.
    wanted: AtomicBool,
    /// A group was flushed, or a follower left.
    pub moved: Notice,
    /// Acknowledgements at these levels publish (see `Watermarks::published`).
    weak: [base::Watermark; 2],
    /// An acknowledgement waits until replicas show this.
    apply_wanted: base::Watermark,
    /// There is an archive, and everything up to here is in it.
    archiving: AtomicBool,
    archived: base::Watermark,
    leases: Mutex<Grantor>,
    /// A lease may be in force.
    lends: AtomicBool,
    /// Whether no other node can be named primary before this time, nanoseconds of `env::Clock::boot_nanos`.
    leads_until: OnceLock<LeadsUntil>,
}

/// See [`Shipping::lend_while`].
pub type LeadsUntil = Box<dyn Fn(u64) -> bool + Send + Sync>;

impl Shipping {
    /// `replicas`: how many must hold a commit before it is decided. `most`: bytes of groups kept in memory for followers.
    pub fn new(
        marks: Arc<Watermarks>,
        waiters: Arc<Waiters>,
        replicas: usize,
        most: usize,
    ) -> Shipping {
        Shipping {
            most,
            // What an earlier life has acknowledged is found at the start, and shown later.
            ruled: base::Watermark::new(marks.floor),
            marks,
            waiters,
            state: Mutex::default(),
            quorum: Mutex::new(Quorum::new(replicas)),
            counted: Mutex::default(),
            wanted: AtomicBool::new(false),
            moved: Notice::default(),
            weak: Default::default(),
            apply_wanted: base::Watermark::default(),
            archiving: AtomicBool::new(false),
            archived: base::Watermark::default(),
            leases: Mutex::default(),
            lends: AtomicBool::new(false),
            leads_until: OnceLock::new(),
        }
    }

    /// Whether the flusher should leave its groups here.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// A group is durable. `group` is absent when no replica follows, or when the positions hold no commit.
    pub fn flushed(&self, upto: Position, group: Option<Group>, limit: Option<LogPoint>) {
        let mut s = self.state.lock();
        s.limit = limit.or(s.limit);
        // What is kept has no gap but positions without commits.
        let before = s.recent.back().map(|g| g.upto);
        let after = before.unwrap_or_else(|| self.marks.flushed.get());
        match group {
            Some(group) if !s.followers.is_empty() => {
                s.bytes += group.as_bytes().len();
                s.recent.push_back(Arc::new(Shipped {
                    after,
                    upto,
                    group: Arc::new(group),
                }));
                while s.bytes > self.most && s.recent.len() > 1 {
                    let gone = s.recent.pop_front().expect("more than one");
                    s.bytes -= gone.group.as_bytes().len();
                }
            }
            // Somebody came after the flusher had asked: what follows is not contiguous with what is kept.
            _ if self.is_wanted() && limit.is_some() => {
                s.recent.clear();
                s.bytes = 0;
            }
            _ => {}
        }
        drop(s);
        self.marks.flushed.raise(upto);
        self.settle();
        self.moved.moved();
    }

    /// What the decider makes of the newest facts goes to the watermarks, and what waited is let go. A decision is in the watermarks before the
    /// decider can be told otherwise: after [`Shipping::want_replicas`] and [`Shipping::count_only`] none comes by the old rule.
    pub fn settle(&self) {
        let marks = &self.marks;
        let flushed = marks.flushed.get();
        let before = marks.published.get();
        let quorum = self.quorum.lock();
        let levels = quorum.levels(flushed);
        marks.written.raise(levels.written);
        let [local, remote] = &self.weak;
        marks.publish(local.get().min(flushed));
        marks.publish(remote.get().min(levels.written));
        marks.decide(levels.decided);
        marks.applied.raise(levels.applied);
        drop(quorum);
        self.waiters.wake(flushed);
        if self.lends() && marks.published.get() > before {
            // Reads at a holder wait for it.
            self.moved.moved();
        }
    }

    /// A commit will be acknowledged when it is flushed here, or (`remote`) received by replicas, whether it is decided or not.
    pub fn acknowledge_early(&self, at: Position, remote: bool) {
        self.weak[usize::from(remote)].raise(at);
        if self.marks.flushed.get() >= at {
            self.settle();
        }
    }

    /// A commit will be acknowledged when replicas show it.
    pub fn wants_applied(&self, at: Position) {
        self.apply_wanted.raise(at);
    }

    /// Whether a commit may wait for what the replica at this connection acknowledges. Read leases aside.
    pub fn awaits(&self, id: u64) -> bool {
        if self.apply_wanted.get() > self.marks.applied.get() {
            return true;
        }
        let s = self.state.lock();
        let counted = self.counted.lock();
        let f = s.followers.get(&id).filter(|f| f.member);
        let counts = f.is_some_and(|f| counts_as(&counted, f).is_some());
        let quorum = self.quorum.lock();
        // Members that no commit waits for may be waited for again, or lead: how far they are is looked at all the time.
        let are_members = counted.is_some() && quorum.replicas() == 0;
        counts && (are_members || quorum.awaits(id))
    }

    /// Something at the node of this name waits for the log up to here.
    pub fn waits_for_log(&self, name: &str, at: Position) {
        let mut gathers = false;
        let mut s = self.state.lock();
        let named = s.followers.values_mut();
        for f in named.filter(|f| f.member && f.name == name) {
            f.waits = f.waits.max(at);
            gathers |= f.sent < at;
        }
        drop(s);
        // Flushed before this was known, it may gather already.
        if gathers && self.marks.flushed.get() >= at {
            self.moved.moved();
        }
    }

    /// Whether something at the replica of this connection waits for log above this.
    pub fn is_waiting(&self, id: u64, sent: Position) -> bool {
        let s = self.state.lock();
        s.followers.get(&id).is_some_and(|f| f.waits > sent)
    }

    /// Somebody follows from now on. Its id.
    pub fn join(
        &self,
        name: &str,
        member: bool,
        address: &str,
        needs: Position,
        now_micros: i64,
    ) -> u64 {
        let mut s = self.state.lock();
        s.next_id += 1;
        let id = s.next_id;
        let follower = Follower {
            id,
            name: name.into(),
            member,
            number: None,
            address: address.into(),
            sent: needs,
            acked: Acked::default(),
            heard_micros: now_micros,
            echo_micros: now_micros,
            connected_micros: now_micros,
            state: "catchup",
            needs,
            waits: Position::ZERO,
        };
        s.followers.insert(id, follower);
        self.wanted.store(true, Ordering::Release);
        id
    }

    /// This one says which number it has in a cluster that runs itself.
    pub fn says_number(&self, id: u64, number: u64) {
        if let Some(f) = self.state.lock().followers.get_mut(&id) {
            f.number = Some(number);
        }
    }

    /// It does not follow any more.
    pub fn leave(&self, id: u64) {
        let mut s = self.state.lock();
        s.followers.remove(&id);
        if s.followers.is_empty() {
            self.wanted.store(false, Ordering::Release);
            s.recent.clear();
            s.bytes = 0;
        }
        drop(s);
        self.quorum.lock().left(id);
        self.settle();
        self.moved.moved();
    }

    /// An acknowledgement came. `now_micros`: by the civil clock; `now_nanos`: by the one that counts leases.
    pub fn acked(&self, id: u64, acked: Acked, echo_micros: i64, now_micros: i64, now_nanos: u64) {
        let mut s = self.state.lock();
        let counts = |f: &&mut Follower| f.member || env::fault::planted("ship.unproven_ack");
        let Some(f) = s.followers.get_mut(&id).filter(counts) else {
            return;
        };
        f.acked = acked;
        f.needs = f.needs.max(acked.persisted);
        (f.heard_micros, f.echo_micros) = (now_micros, echo_micros);
        let counted = self.counted.lock();
        if let Some(name) = counts_as(&counted, f) {
            self.quorum.lock().acked(id, name, acked);
        }
        drop(counted);
        drop(s);
        if self.lends() {
            let mut leases = self.leases.lock();
            leases.acked(id, acked.received);
            self.keep_below(&mut leases, now_nanos);
        }
        self.settle();
    }

    /// How far the connection has come.
    pub fn sent(&self, id: u64, upto: Position, state: &'static str) {
        if let Some(f) = self.state.lock().followers.get_mut(&id) {
            f.sent = f.sent.max(upto);
            f.state = state;
        }
    }

    /// What comes after `position`, a few groups at a time.
    pub fn after(&self, position: Position) -> Next {
        let s = self.state.lock();
        let from = s.recent.partition_point(|g| g.upto <= position);
        match s.recent.get(from) {
            Some(first) if first.after <= position => {
                let some = s.recent.range(from..).take(16).cloned().collect();
                Next::Groups(some)
            }
            Some(_) => Next::Behind,
            // The log may hold commits above it that are not kept in memory.
            None if self.marks.flushed.get() > position
                && s.recent.back().is_none_or(|g| g.upto < position) =>
            {
                Next::Behind
            }
            None => Next::Nothing,
        }
    }

    /// Up to where followers may read the log's segments.
    pub fn limit(&self) -> Option<LogPoint> {
        self.state.lock().limit
    }

    /// The log ends here when it begins to be shipped (a start).
    pub fn set_limit(&self, limit: Option<LogPoint>) {
        let mut s = self.state.lock();
        s.limit = limit.or(s.limit);
    }

    /// Everybody who follows.
    pub fn followers(&self) -> Vec<Follower> {
        self.state.lock().followers.values().cloned().collect()
    }

    /// Whether this one follows still.
    pub fn follows(&self, id: u64) -> bool {
        self.state.lock().followers.contains_key(&id)
    }

    /// How many replicas follow, however many connections each has.
    pub fn replicas_here(&self) -> usize {
        let s = self.state.lock();
        let members = s.followers.values().filter(|f| f.member);
        let names: BTreeSet<&str> = members.map(|f| &*f.name).collect();
        names.len()
    }

    /// Log above here is needed by somebody who is connected.
    pub fn floor(&self) -> Option<Position> {
        let s = self.state.lock();
        let members = s.followers.values().filter(|f| f.member);
        members.map(|f| f.needs).min()
    }

    /// There is an archive: log that is not in it stays, as far as `wal_keep_bytes` go.
    pub fn begin_archiving(&self) {
        self.archiving.store(true, Ordering::SeqCst);
    }

    /// Everything up to here is in the archive.
    pub fn archived(&self, to: Position) {
        self.archived.raise(to);
    }

    /// Up to where the archive has everything; none without an archive.
    pub fn archived_to(&self) -> Option<Position> {
        let archiving = self.archiving.load(Ordering::SeqCst);
        archiving.then(|| self.archived.get())
    }

    /// Whether a replica has ever followed since the start, or is asked for.
    pub fn ever_followed(&self) -> bool {
        self.state.lock().next_id > 0 || self.replicas() > 0
    }

    /// Replicas that must hold a commit before it is decided.
    pub fn replicas(&self) -> usize {
        self.quorum.lock().replicas()
    }

    /// From now on so many replicas must hold a commit before it is decided. How many it were before, where that changes.
    pub fn want_replicas(&self, wanted: usize) -> Option<usize> {
        let mut quorum = self.quorum.lock();
        let before = quorum.replicas();
        if before == wanted {
            return None;
        }
        quorum.want(wanted);
        self.begin_rule();
        drop(quorum);
        self.settle();
        Some(before)
    }

    /// Another rule holds from here on. Called with the decider locked: what was decided by the old one is in the watermarks.
    fn begin_rule(&self) {
        self.ruled.raise(self.marks.published.get());
    }

    /// What was acknowledged by an older rule, or in an earlier life, stands at or below this. The rule: how many replicas must hold a commit, and which
    /// count. Acknowledged at a level that waits for replicas, if the rule asks for any.
    pub fn ruled(&self) -> Position {
        self.ruled.get()
    }

    /// Only acknowledgements of these replicas count from now on: numbers, with names. A replica that was taken out does not count beside the one that has its
    /// name now, and a member counts whatever it calls itself.
    pub fn count_only(&self, replicas: BTreeMap<u64, String>) {
        self.count(Some(replicas));
    }

    /// Acknowledgements of all nodes count from now on, by what they call themselves.
    pub fn count_all(&self) {
        self.count(None);
    }

    fn count(&self, replicas: Counted) {
        let s = self.state.lock();
        let mut counted = self.counted.lock();
        if *counted == replicas {
            return;
        }
        *counted = replicas;
        let mut quorum = self.quorum.lock();
        for f in s.followers.values().filter(|f| f.member) {
            // It may have counted under another name.
            quorum.left(f.id);
            if let Some(name) = counts_as(&counted, f) {
                quorum.acked(f.id, name, f.acked);
            }
        }
        self.begin_rule();
        drop((quorum, counted, s));
        self.settle();
    }

    /// Whether a lease may be in force: a load.
    fn lends(&self) -> bool {
        self.lends.load(Ordering::SeqCst)
    }

    /// The ceiling follows the leases. One that holds it down no more is gone: a request that came in before, and is looked at after, must not have it go on.
    fn keep_below(&self, leases: &mut Grantor, now: u64) {
        leases.lapse(now);
        self.marks.ceiling.set(leases.ceiling(now));
        self.lends.store(!leases.is_over(now), Ordering::SeqCst);
    }

    /// Leases are granted only where this says that the node leads as long as they last. Without it they always are.
    pub fn lend_while(&self, leads_until: LeadsUntil) {
        if !env::fault::planted("lease.beyond_its_own") {
            _ = self.leads_until.set(leads_until);
        }
    }

    /// The replica at this connection asks for a read lease, or for its own to go on. Where it answers from; none: it gets none. `leads`: whether this node leads when
    /// that is called; `last_given`: the last position that was given by then.
    pub fn lend(
        &self,
        id: u64,
        ask: Ask,
        now: u64,
        leads: impl FnOnce() -> bool,
        last_given: impl FnOnce() -> Position,
    ) -> Option<Position> {
        let until = now + replica::lease::GRANTED;
        if self.leads_until.get().is_some_and(|leads| !leads(until)) {
            return None;
        }
        let s = self.state.lock();
        let received = s.followers.get(&id).filter(|f| f.member)?.acked.received;
        drop(s);
        if received == Position::ZERO {
            // It has not said yet how far it is.
            return None;
        }
        let mut leases = self.leases.lock();
        // A node that hands over asks, behind this lock, whether leases are over, when it leads no more.
        if !leads() {
            return None;
        }
        let asked = leases.ask(ask, id, received, now);
        self.keep_below(&mut leases, now);
        match asked {
            Asked::Begins => {
                let first = last_given();
                leases.begins(ask.life, first);
                Some(first)
            }
            Asked::GoesOn(first) => Some(first),
            Asked::Late => None,
        }
    }

    /// Time has passed: leases that are over hold nothing up any more.
    pub fn leases_lapse(&self, now: impl FnOnce() -> u64) {
        if !self.lends() {
            return;
        }
        self.changes_leases(now(), |_| ());
    }

    /// The holder of this life answers by no lease that it asked for up to this request.
    pub fn given_back(&self, ask: Ask, now: impl FnOnce() -> u64) {
        self.changes_leases(now(), |leases| leases.given_back(ask));
    }

    /// What has waited for a lease that is over by then, or by this change, is published.
    fn changes_leases(&self, now: u64, change: impl FnOnce(&mut Grantor)) {
        let mut leases = self.leases.lock();
        let before = self.marks.ceiling.get();
        change(&mut leases);
        self.keep_below(&mut leases, now);
        let rises = self.marks.ceiling.get() > before;
        drop(leases);
        if rises {
            self.settle();
            self.moved.moved();
        }
    }

    /// Others may have granted leases that are in force until then: nothing is published before.
    pub fn wait_out_leases(&self, until: u64, now: u64) {
        let mut leases = self.leases.lock();
        leases.wait_out(until);
        self.keep_below(&mut leases, now);
    }

    /// Whether no read lease is in force, of this node or of others that it waits out.
    pub fn leases_are_over(&self, now: u64) -> bool {
        self.leases.lock().is_over(now)
    }

    /// Whether the replica at this connection holds a read lease.
    pub fn lends_to(&self, id: u64, now: u64) -> bool {
        self.lends() && self.leases.lock().lends_to(id, now)
    }

    /// How many of the counted replicas have everything up to here in their logs. One that has not said how far it is has nothing.
    pub fn holding(&self, at: Position) -> usize {
        let at = at.max(Position::ZERO.next());
        let s = self.state.lock();
        let counted = self.counted.lock();
        let have = s.followers.values();
        let have = have.filter(|f| f.member && f.acked.persisted >= at);
        let names: BTreeSet<&str> = have.filter_map(|f| counts_as(&counted, f)).collect();
        names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_are_named_count_and_the_number_can_change() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 0, 1 << 20);
        shipping.want_replicas(1);
        let at = Position::new(1, 5);
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        let acked = Acked {
            received: at,
            persisted: at,
            ..Acked::default()
        };
        shipping.count_only([(1, "a".to_owned())].into());
        let other = shipping.join("b", true, "", Position::ZERO, 0);
        shipping.says_number(other, 2);
        shipping.acked(other, acked, 0, 0, 0);
        assert_eq!(
            marks.decided.get(),
            Position::ZERO,
            "it is not of the cluster"
        );
        assert_eq!(shipping.holding(at), 0);
        // It joins: what it has said already counts.
        shipping.count_only([(1, "a".to_owned()), (2, "b".to_owned())].into());
        assert_eq!(marks.decided.get(), at);
        assert_eq!(shipping.holding(at), 1);
    }

    #[test]
    fn a_replica_is_waited_for_where_a_commit_or_the_members_may_need_it() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 0, 1 << 20);
        let at = Position::new(1, 5);
        let all = |at| Acked {
            received: at,
            persisted: at,
            visible: at,
            ..Acked::default()
        };
        let [one, other] = ["a", "b"].map(|n| shipping.join(n, true, "", Position::ZERO, 0));
        let stranger = shipping.join("c", false, "", Position::ZERO, 0);
        shipping.says_number(one, 1);
        let awaited = || [one, other, stranger].map(|id| shipping.awaits(id));
        for id in [one, other] {
            shipping.acked(id, all(at.prev()), 0, 0, 0);
        }
        assert_eq!(awaited(), [false; 3]);
        // At `remote_apply`, where no replica has to have a commit, all that follow are waited for.
        shipping.wants_applied(at);
        assert_eq!(awaited(), [true; 3]);
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        shipping.acked(one, all(at), 0, 0, 0);
        assert_eq!(awaited(), [true; 3]);
        shipping.acked(other, all(at), 0, 0, 0);
        assert_eq!(awaited(), [false; 3]);
        shipping.want_replicas(1);
        assert_eq!(awaited(), [true, true, false]);
        shipping.count_only([(1, "a".to_owned())].into());
        assert_eq!(awaited(), [true, false, false]);
        shipping.want_replicas(0);
        assert_eq!(awaited(), [true, false, false], "the members look at it");
    }

    /// What is promised counts from here: all that was acknowledged by a rule that asked for less.
    #[test]
    fn what_an_older_rule_or_life_has_acknowledged_is_known() {
        let at = Position::new(1, 5);
        // A start finds log, and shows it when a replica has said that it has all of it.
        let marks = Arc::new(Watermarks::recovered(at));
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 1, 1 << 20);
        assert_eq!(
            (marks.published.get(), shipping.ruled()),
            (Position::ZERO, at)
        );
        let replica = shipping.join("a", true, "", Position::ZERO, 0);
        assert_eq!(shipping.holding(Position::ZERO), 0, "it has said nothing");
        let acked = |persisted| Acked {
            received: persisted,
            persisted,
            ..Acked::default()
        };
        shipping.acked(replica, acked(at.prev()), 0, 0, 0);
        assert_eq!(marks.published.get(), at.prev());
        assert_eq!(
            shipping.holding(shipping.ruled()),
            0,
            "it lacks the last one"
        );
        shipping.acked(replica, acked(at), 0, 0, 0);
        assert_eq!(shipping.holding(shipping.ruled()), 1);
        // Commits are acknowledged without it, and then with it again.
        shipping.want_replicas(0);
        let alone = at.next();
        marks.installed.raise(alone);
        shipping.flushed(alone, None, None);
        assert_eq!(marks.decided.get(), alone);
        shipping.want_replicas(1);
        assert_eq!(
            (shipping.ruled(), shipping.holding(shipping.ruled())),
            (alone, 0)
        );
        // What comes now waits for it, so that does not move the mark.
        let next = alone.next();
        marks.installed.raise(next);
        shipping.acknowledge_early(next, false);
        shipping.flushed(next, None, None);
        shipping.acked(replica, acked(alone), 0, 0, 0);
        assert_eq!(marks.published.get(), next);
        assert_eq!(shipping.holding(shipping.ruled()), 1);
        // Others count from here on: it has to be looked at anew which of them hold what.
        shipping.count_only([(1, "a".to_owned())].into());
        assert_eq!((shipping.ruled(), shipping.holding(alone)), (next, 0));
        shipping.count_all();
        assert_eq!(shipping.holding(alone), 1);
    }

    /// At any level: what a holder of a read lease has not received is not published, until its lease is over.
    #[test]
    fn nothing_is_published_that_a_holder_has_not_received() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 0, 1 << 20);
        let [at, next] = [Position::new(1, 5), Position::new(1, 6)];
        let holder = shipping.join("a", true, "", Position::ZERO, 0);
        let stranger = shipping.join("b", false, "", Position::ZERO, 0);
        let received = |at| Acked {
            received: at,
            ..Acked::default()
        };
        let ask = Ask { life: 7, number: 1 };
        assert_eq!(
            shipping.lend(holder, ask, 0, || true, || at),
            None,
            "it says nothing"
        );
        shipping.acked(stranger, received(at), 0, 0, 0);
        assert_eq!(
            shipping.lend(stranger, ask, 0, || true, || at),
            None,
            "it is no node"
        );
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        shipping.acked(holder, received(at), 0, 0, 0);
        assert_eq!(
            shipping.lend(holder, ask, 0, || false, || at),
            None,
            "it is sealed"
        );
        assert_eq!(shipping.lend(holder, ask, 0, || true, || at), Some(at));
        assert!(shipping.lends_to(holder, 0) && !shipping.leases_are_over(0));
        marks.installed.raise(next);
        shipping.acknowledge_early(next, false);
        shipping.flushed(next, None, None);
        assert_eq!((marks.published.get(), marks.decided.get()), (at, at));
        shipping.acked(holder, received(next), 0, 0, 1);
        assert_eq!((marks.published.get(), marks.decided.get()), (next, next));
        // Its connection ends, and it may read still.
        shipping.leave(holder);
        marks.installed.raise(next.next());
        shipping.flushed(next.next(), None, None);
        let over = replica::lease::GRANTED;
        shipping.leases_lapse(|| over - 1);
        assert_eq!(marks.published.get(), next);
        shipping.leases_lapse(|| over);
        assert_eq!(marks.published.get(), next.next());
        assert!(shipping.leases_are_over(over));
    }

    /// Another replica's acknowledgement comes between the look at the clock for a request and the request.
    #[test]
    fn a_lease_that_is_over_does_not_go_on_by_a_request_that_was_held_up() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 0, 1 << 20);
        let [at, next] = [Position::new(1, 5), Position::new(1, 6)];
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        let [holder, other] = ["a", "b"].map(|n| shipping.join(n, true, "", Position::ZERO, 0));
        let received = |at| Acked {
            received: at,
            ..Acked::default()
        };
        shipping.acked(holder, received(at), 0, 0, 0);
        let ask = |number| Ask { life: 7, number };
        assert_eq!(shipping.lend(holder, ask(1), 0, || true, || at), Some(at));
        let over = replica::lease::GRANTED;
        marks.installed.raise(next);
        shipping.flushed(next, None, None);
        assert_eq!(marks.published.get(), at);
        shipping.acked(other, received(next), 0, 0, over);
        assert_eq!(marks.published.get(), next, "the lease is over");
        // It came in just before. The holder lacks what was published since, so it may answer only behind that.
        let first = shipping.lend(holder, ask(2), over - 1, || true, || next);
        assert_eq!(first, Some(next));
    }

    #[test]
    fn no_lease_reaches_beyond_that_of_its_primary() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 0, 1 << 20);
        let at = Position::new(1, 5);
        let holder = shipping.join("a", true, "", Position::ZERO, 0);
        let acked = Acked {
            received: at,
            ..Acked::default()
        };
        shipping.acked(holder, acked, 0, 0, 0);
        let leads_until = replica::lease::GRANTED + 9;
        shipping.lend_while(Box::new(move |until| until <= leads_until));
        let ask = |number| Ask { life: 7, number };
        assert_eq!(shipping.lend(holder, ask(1), 9, || true, || at), Some(at));
        assert_eq!(shipping.lend(holder, ask(2), 10, || true, || at), None);
    }

    /// A host's name may change, and with it what a node calls itself.
    #[test]
    fn a_member_counts_whatever_it_calls_itself_now() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 1, 1 << 20);
        let at = Position::new(1, 5);
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        let acked = Acked {
            received: at,
            persisted: at,
            ..Acked::default()
        };
        shipping.count_only([(1, "old:5432".to_owned())].into());
        let renamed = shipping.join("new:5432", true, "", Position::ZERO, 0);
        shipping.says_number(renamed, 1);
        shipping.acked(renamed, acked, 0, 0, 0);
        assert_eq!((marks.decided.get(), shipping.holding(at)), (at, 1));
        // Over two connections it is one replica still.
        let again = shipping.join("newer:5432", true, "", Position::ZERO, 0);
        shipping.says_number(again, 1);
        shipping.acked(again, acked, 0, 0, 0);
        assert_eq!(shipping.holding(at), 1);
    }

    /// A member that was taken out while it was down comes back, and another one has its name by now.
    #[test]
    fn a_replica_of_another_number_does_not_count_under_its_name() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 1, 1 << 20);
        let at = Position::new(1, 5);
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        let acked = Acked {
            received: at,
            persisted: at,
            ..Acked::default()
        };
        shipping.count_only([(2, "a".to_owned())].into());
        let old = shipping.join("a", true, "", Position::ZERO, 0);
        shipping.says_number(old, 1);
        shipping.acked(old, acked, 0, 0, 0);
        assert_eq!(
            (marks.decided.get(), shipping.holding(at)),
            (Position::ZERO, 0)
        );
        let new = shipping.join("a", true, "", Position::ZERO, 0);
        shipping.says_number(new, 2);
        shipping.acked(new, acked, 0, 0, 0);
        assert_eq!((marks.decided.get(), shipping.holding(at)), (at, 1));
    }

    /// A connection that is dead and not noticed yet does not vote beside the one that came after it.
    #[test]
    fn one_replica_over_two_connections_is_no_quorum_of_two() {
        let marks = Arc::new(Watermarks::default());
        let shipping = Shipping::new(marks.clone(), Arc::new(Waiters::default()), 2, 1 << 20);
        let at = Position::new(1, 5);
        marks.installed.raise(at);
        shipping.flushed(at, None, None);
        let acked = Acked {
            received: at,
            persisted: at,
            ..Acked::default()
        };
        for _ in 0..2 {
            let id = shipping.join("a", true, "", Position::ZERO, 0);
            shipping.acked(id, acked, 0, 0, 0);
        }
        assert_eq!(marks.decided.get(), Position::ZERO);
        assert_eq!(marks.written.get(), Position::ZERO);
        let stranger = shipping.join("b", false, "", Position::ZERO, 0);
        shipping.acked(stranger, acked, 0, 0, 0);
        assert_eq!(marks.decided.get(), Position::ZERO, "it is no node");
        assert_eq!(shipping.replicas_here(), 1);
        let other = shipping.join("b", true, "", Position::ZERO, 0);
        shipping.acked(other, acked, 0, 0, 0);
        assert_eq!(marks.decided.get(), at);
        assert_eq!(shipping.replicas_here(), 2);
    }
}
