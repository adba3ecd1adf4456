//! Row locks: PostgreSQL's four modes and one for deltas of split columns, first come first served, deadlocks found when a wait begins.
//!
//! A lock's name is (space, hash): the storage and a row key's hash, or an index and the hash of a unique key, or a table.
//! Two rows that share a 64-bit hash share a lock, which costs a wait and nothing else. Locks live in a table of shards and only
//! while somebody holds or wants them; a counter per hash bucket tells an optimistic commit that nobody does.
//!
//! A transaction that may not have a lock at once is put in its queue and gets a [`LockWait`]. The lock is given to it when it is free,
//! before it runs again. A wait that would close a cycle fails with 40P01 at once: the newcomer loses, unless another order of the waiters opens the
//! cycle (`soft`). Only the waiting path takes the global mutex of the search, which sees every cycle because each wait is entered before it is searched.
//!
//! Running transactions have names here, too (`contention.rs`): a wait for one of them is a *courtesy*, which ends by itself soon. Courtesies
//! fail if they would close any cycle. Of a wait for a row they are in the way only where the holder of that row waits for the newcomer
//! out of courtesy; a cycle that goes through those of others besides opens again by itself, and costs nobody his transaction.
//!
//! A session's advisory locks (`advisory.rs`) belong to a *bearer* that outlives transactions. The bearer and the running transaction of its
//! session are *twins*: the session waits for one thing at a time, so the search goes on at the twin that waits.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use crate::table_modes::TableModes;

mod soft;

/// PostgreSQL's four row-lock modes, and Delta: the transaction adds to split columns of the row and does nothing else to it.
///
/// | may not be held beside | KeyShare | Share | Delta | NoKeyUpdate | Update |
/// |---|---|---|---|---|---|
/// | KeyShare | | | | | x |
/// | Share | | | x | x | x |
/// | Delta | | x | | x | x |
/// | NoKeyUpdate | | x | x | x | x |
/// | Update | x | x | x | x | x |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    KeyShare,
    Share,
    Delta,
    NoKeyUpdate,
    Update,
    /// Of a table. A change of its schema (`Update`) and it keep each other off.
    Table(TableModes),
}

impl LockMode {
    /// Whether two holders may not have these modes at once.
    pub fn conflicts(self, other: LockMode) -> bool {
        use LockMode::{Delta, KeyShare, Share, Table};
        match (self, other) {
            (Table(a), Table(b)) => return a.conflicts(b),
            (Table(_), o) | (o, Table(_)) => return o == LockMode::Update,
            _ => {}
        }
        !matches!(
            (self, other),
            (KeyShare, KeyShare | Share | Delta | LockMode::NoKeyUpdate)
                | (Share | Delta | LockMode::NoKeyUpdate, KeyShare)
                | (Share, Share)
                | (Delta, Delta)
        )
    }

    /// The weakest mode that keeps away whatever one of the two keeps away.
    pub fn join(self, other: LockMode) -> LockMode {
        use LockMode::{Delta, NoKeyUpdate, Share, Table, Update};
        match (self, other) {
            (Table(a), Table(b)) => Table(a.with(b)),
            (Table(_), Update) | (Update, Table(_)) => Update,
            (Share, Delta) | (Delta, Share) => NoKeyUpdate,
            (a, b) if a.strength() >= b.strength() => a,
            (_, b) => b,
        }
    }

    fn strength(self) -> u8 {
        match self {
            LockMode::KeyShare => 0,
            LockMode::Share => 1,
            LockMode::Delta => 2,
            LockMode::NoKeyUpdate => 3,
            LockMode::Update => 4,
            LockMode::Table(_) => 5,
        }
    }
}

/// What to do about a lock that is held by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    Wait,
    /// 55P03 at once.
    NoWait,
    SkipLocked,
}

/// Number of a transaction.
pub type TxnId = u64;

/// Space of the locks that stand for a running transaction; its number is the hash.
pub(crate) const RUNNING_SPACE: u32 = u32::MAX;

/// Name of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockName {
    pub space: u32,
    pub hash: u64,
}

impl LockName {
    fn is_courtesy(self) -> bool {
        self.space == RUNNING_SPACE
    }
}

/// How a wait is entered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiter {
    /// The other name under which the session holds locks.
    pub twin: Option<TxnId>,
    /// The caller looks for a cycle later ([`LockTable::is_deadlocked`]).
    pub patient: bool,
}

/// What becomes of a place among the holders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Queue,
    Lock,
    /// The lock is held in this mode from here on.
    Weaker(LockMode),
}

/// How an attempt ended.
pub enum Attempt {
    Granted,
    Wait(LockWait),
    Deadlock,
}

#[derive(Default)]
struct Queue {
    holders: Vec<(TxnId, LockMode)>,
    waiters: VecDeque<(TxnId, LockMode, Arc<WaitState>)>,
}

impl Queue {
    /// Gives the lock to each waiter that nothing before it keeps off: neither a holder nor a waiter that stays.
    fn admit(&mut self, granted: &mut Vec<(TxnId, Arc<WaitState>)>) {
        // What the waiters want that stay, joined.
        let mut before: Option<LockMode> = None;
        let mut at = 0;
        while let Some(&(who, mode, _)) = self.waiters.get(at) {
            let mut others = self.holders.iter().filter(|h| h.0 != who);
            let waits =
                before.is_some_and(|b| b.conflicts(mode)) || others.any(|h| h.1.conflicts(mode));
            if waits {
                before = Some(before.map_or(mode, |b| b.join(mode)));
                at += 1;
                if before == Some(LockMode::Update) {
                    break;
                }
                continue;
            }
            let (who, mode, state) = self.waiters.remove(at).expect("looked at above");
            match self.holders.iter_mut().find(|h| h.0 == who) {
                Some(h) => h.1 = h.1.join(mode),
                None => self.holders.push((who, mode)),
            }
            granted.push((who, state));
        }
    }
}

#[derive(Default)]
struct WaitState(Mutex<(bool, Option<Waker>)>);

impl WaitState {
    fn grant(&self) {
        let waker = {
            let mut s = self.0.lock();
            s.0 = true;
            s.1.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }
}

/// A lock that a statement waits for: ready when the lock has been given. To give up, release the transaction's interest
/// (`LockTable::cancel`, which the transaction does when it ends or asks for the lock again without waiting).
pub struct LockWait(Arc<WaitState>);

impl Future for LockWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut s = self.0.0.lock();
        if s.0 {
            return Poll::Ready(());
        }
        s.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

const SHARDS: usize = 128;
const BUCKETS: usize = 1 << 14;

/// All row locks of a node.
pub struct LockTable {
    shards: Vec<Mutex<HashMap<LockName, Queue, foldhash::fast::FixedState>>>,
    /// Locks in use per hash bucket.
    used: Vec<AtomicU32>,
    /// Who waits for what.
    waiting: Mutex<HashMap<TxnId, (LockName, Arc<WaitState>)>>,
    /// Of twins, the one that waited last, by the other. Locked after `waiting`.
    twins: Mutex<HashMap<TxnId, TxnId>>,
    pub waits: AtomicU64,
    /// Advisory locks that are held, each session's once.
    pub(crate) advisory: AtomicUsize,
}

impl Default for LockTable {
    fn default() -> Self {
        LockTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            used: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            waiting: Mutex::default(),
            twins: Mutex::default(),
            waits: AtomicU64::new(0),
            advisory: AtomicUsize::new(0),
        }
    }
}

impl LockTable {
    fn shard(&self, n: LockName) -> &Mutex<HashMap<LockName, Queue, foldhash::fast::FixedState>> {
        &self.shards[(n.hash >> 40) as usize % SHARDS]
    }

    fn bucket(&self, n: LockName) -> &AtomicU32 {
        &self.used[(n.hash ^ u64::from(n.space)) as usize % BUCKETS]
    }

    /// Tries to take a lock; with `wait`, joins the queue when it is held. A `true` in the answer: it is or will be held and was not
    /// before by this transaction, which is to release it.
    pub fn acquire(
        &self,
        me: TxnId,
        name: LockName,
        mode: LockMode,
        wait: bool,
    ) -> (Attempt, bool) {
        self.acquire_as(me, name, mode, wait, Waiter::default())
    }

    /// The same for one half of twins, or for a caller that looks for cycles itself.
    pub(crate) fn acquire_as(
        &self,
        me: TxnId,
        name: LockName,
        mode: LockMode,
        wait: bool,
        how: Waiter,
    ) -> (Attempt, bool) {
        let (state, new) = {
            let mut shard = self.shard(name).lock();
            let q = shard.entry(name).or_insert_with(|| {
                self.bucket(name).fetch_add(1, Ordering::SeqCst);
                Queue::default()
            });
            let mine = q.holders.iter().position(|h| h.0 == me);
            // What it holds already counts: the lock that it wants keeps away all that either keeps away.
            let mode = mine.map_or(mode, |i| q.holders[i].1.join(mode));
            if mine.is_some_and(|i| q.holders[i].1 == mode) {
                return (Attempt::Granted, false);
            }
            let free = q.holders.iter().all(|h| h.0 == me || !h.1.conflicts(mode));
            let first =
                mine.is_some() || !q.waiters.iter().any(|w| w.0 != me && w.1.conflicts(mode));
            if free && first {
                match mine {
                    Some(i) => q.holders[i].1 = mode,
                    None => q.holders.push((me, mode)),
                }
                return (Attempt::Granted, mine.is_none());
            }
            if !wait {
                if q.holders.is_empty() && q.waiters.is_empty() {
                    shard.remove(&name);
                    self.bucket(name).fetch_sub(1, Ordering::SeqCst);
                }
                return (Attempt::Deadlock, false);
            }
            let state = Arc::new(WaitState::default());
            let entry = (me, mode, state.clone());
            // Who holds the lock already and wants more goes first: nobody behind him could get it before he lets go.
            if mine.is_some() {
                q.waiters.push_front(entry)
            } else {
                q.waiters.push_back(entry)
            }
            (state, mine.is_none())
        };
        self.waits.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        waiting.insert(me, (name, state.clone()));
        if let Some(twin) = how.twin {
            let mut twins = self.twins.lock();
            twins.remove(&me);
            twins.insert(twin, me);
        }
        if !how.patient && self.closes_cycle(me, &waiting) {
            let Some(granted) = self.open_cycle(me, &waiting) else {
                waiting.remove(&me);
                drop(waiting);
                // Its holder may have let go since. Then the lock is this transaction's, which would not know that it has to release it.
                self.leave(me, name, new);
                return (Attempt::Deadlock, false);
            };
            drop(waiting);
            self.tell(granted);
            return (Attempt::Wait(LockWait(state)), new);
        }
        drop(waiting);
        (Attempt::Wait(LockWait(state)), new)
    }

    /// The transaction has the lock already, by what it has noted elsewhere: it is written down here from now on.
    pub(crate) fn hold(&self, who: TxnId, name: LockName, mode: LockMode) {
        let mut shard = self.shard(name).lock();
        let q = shard.entry(name).or_insert_with(|| {
            self.bucket(name).fetch_add(1, Ordering::SeqCst);
            Queue::default()
        });
        match q.holders.iter_mut().find(|h| h.0 == who) {
            Some(h) => h.1 = h.1.join(mode),
            None => q.holders.push((who, mode)),
        }
    }

    /// Another transaction that holds a lock of this name in a mode that conflicts with `mode`, if there is one.
    pub fn holder(&self, me: TxnId, name: LockName, mode: LockMode) -> Option<TxnId> {
        if self.bucket(name).load(Ordering::SeqCst) == 0 {
            return None;
        }
        let shard = self.shard(name).lock();
        let mut holders = shard.get(&name)?.holders.iter();
        let other = holders.find(|h| h.0 != me && h.1.conflicts(mode));
        other.map(|h| h.0)
    }

    /// Whether the transaction holds a lock of this name, in whatever mode.
    pub(crate) fn holds(&self, me: TxnId, name: LockName) -> bool {
        self.mode_of(me, name).is_some()
    }

    /// The mode in which the transaction holds a lock of this name.
    pub(crate) fn mode_of(&self, me: TxnId, name: LockName) -> Option<LockMode> {
        let shard = self.shard(name).lock();
        let mut holders = shard.get(&name)?.holders.iter();
        holders.find(|h| h.0 == me).map(|h| h.1)
    }

    /// Gives back what the transaction holds or wants under this name.
    pub fn release(&self, me: TxnId, name: LockName) {
        self.leave(me, name, true);
    }

    /// Leaves the queue; what is held stays.
    pub fn cancel(&self, me: TxnId, name: LockName) {
        self.leave(me, name, false);
    }

    /// Holds the lock in a weaker mode from here on.
    pub(crate) fn weaken(&self, me: TxnId, name: LockName, mode: LockMode) {
        let granted = self.hand_on(me, name, Leaving::Weaker(mode));
        self.tell(granted);
    }

    /// Holds a lock for deltas, if it has that and no stronger one, as one on the key from here on.
    pub(crate) fn weaken_delta(&self, me: TxnId, name: LockName) {
        let held = (me, LockMode::Delta);
        let shard = self.shard(name).lock();
        let is_held = shard.get(&name).is_some_and(|q| q.holders.contains(&held));
        drop(shard);
        if is_held {
            self.weaken(me, name, LockMode::KeyShare);
        }
    }

    /// The one that waits for this has a twin, as is known only now.
    pub(crate) fn pair(&self, me: TxnId, twin: TxnId, name: LockName) {
        let waiting = self.waiting.lock();
        if waiting.get(&me).is_some_and(|w| w.0 == name) {
            self.twins.lock().insert(twin, me);
        }
    }

    /// One of twins is no more.
    pub(crate) fn forget_twin(&self, twin: TxnId) {
        self.twins.lock().remove(&twin);
    }

    /// Whether this one waits, and its wait is part of a cycle that no other order of the waiters opens. Else they have that order.
    pub fn is_deadlocked(&self, me: TxnId) -> bool {
        let waiting = self.waiting.lock();
        if !waiting.contains_key(&me) || !self.closes_cycle(me, &waiting) {
            return false;
        }
        let opened = self.open_cycle(me, &waiting);
        drop(waiting);
        match opened {
            Some(granted) => self.tell(granted),
            None => return true,
        }
        false
    }

    /// Those that this one waits for, holders and waiters before it; empty when it does not wait.
    pub fn blockers(&self, me: TxnId) -> Vec<TxnId> {
        let waiting = self.waiting.lock();
        let Some(&(name, _)) = waiting.get(&me) else {
            return vec![];
        };
        drop(waiting);
        self.standing(name).blockers(me, true)
    }

    /// Every lock of this space, held and waited for: its hash, the holder, the mode, whether it is held.
    pub(crate) fn list(&self, space: u32) -> Vec<(u64, TxnId, LockMode, bool)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for (name, q) in shard.iter().filter(|(n, _)| n.space == space) {
                all.extend(q.holders.iter().map(|h| (name.hash, h.0, h.1, true)));
                all.extend(q.waiters.iter().map(|w| (name.hash, w.0, w.1, false)));
            }
        }
        all
    }

    fn leave(&self, me: TxnId, name: LockName, holder: bool) {
        let how = match holder {
            true => Leaving::Lock,
            false => Leaving::Queue,
        };
        let granted = self.hand_on(me, name, how);
        self.tell(granted);
    }

    /// Who has the lock from here on, and does not know it yet.
    fn hand_on(&self, me: TxnId, name: LockName, how: Leaving) -> Vec<(TxnId, Arc<WaitState>)> {
        let mut granted: Vec<(TxnId, Arc<WaitState>)> = Vec::new();
        let mut shard = self.shard(name).lock();
        let Some(q) = shard.get_mut(&name) else {
            return granted;
        };
        match how {
            Leaving::Queue => {}
            Leaving::Lock => q.holders.retain(|h| h.0 != me),
            Leaving::Weaker(mode) => {
                let mine = q.holders.iter_mut().filter(|h| h.0 == me);
                mine.for_each(|h| h.1 = mode);
            }
        }
        q.waiters.retain(|w| w.0 != me);
        q.admit(&mut granted);
        if q.holders.is_empty() && q.waiters.is_empty() {
            shard.remove(&name);
            self.bucket(name).fetch_sub(1, Ordering::SeqCst);
        }
        granted
    }

    fn tell(&self, granted: Vec<(TxnId, Arc<WaitState>)>) {
        if granted.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        for (who, state) in &granted {
            // Who gave up before he heard of it may wait for something else by now.
            if waiting.get(who).is_some_and(|w| Arc::ptr_eq(&w.1, state)) {
                waiting.remove(who);
            }
        }
        drop(waiting);
        granted.iter().for_each(|(_, s)| s.grant());
    }

    /// A transaction gave up waiting.
    pub fn stop_waiting(&self, me: TxnId, name: LockName) {
        self.waiting.lock().remove(&me);
        self.cancel(me, name);
    }

    /// The queue of this name as it stands.
    fn standing(&self, name: LockName) -> Standing {
        let mut all = Standing::default();
        let shard = self.shard(name).lock();
        let Some(q) = shard.get(&name) else {
            return all;
        };
        all.holders = q.holders.clone();
        all.waiters = q.waiters.iter().map(|w| (w.0, w.1)).collect();
        drop(shard);
        let places = all.waiters.iter().enumerate();
        all.places = places.map(|(at, w)| (w.0, at)).collect();
        all
    }

    fn closes_cycle(
        &self,
        me: TxnId,
        waiting: &HashMap<TxnId, (LockName, Arc<WaitState>)>,
    ) -> bool {
        let courtesy = waiting[&me].0.is_courtesy();
        let twins = self.twins.lock();
        let mut seen = Ids::default();
        let mut first: Option<Ids> = None;
        // Each queue once, however many of those who wait in it are met.
        let mut queues: HashMap<LockName, Standing, foldhash::fast::FixedState> =
            HashMap::default();
        let mut todo = vec![me];
        while let Some(t) = todo.pop() {
            let Some(&(name, _)) = waiting.get(&t) else {
                continue;
            };
            let is_first = || first.as_ref().is_some_and(|f| f.contains(&t));
            if name.is_courtesy() && !courtesy {
                // It ends by itself, also when whom it is for waits for the newcomer.
                if is_first() && name.hash == me {
                    return true;
                }
                continue;
            }
            let queue = queues.entry(name).or_insert_with(|| self.standing(name));
            let blockers = queue.blockers(t, t == me);
            // Who is blocked by a holder waits for the twin of it that waits.
            let blockers: Vec<TxnId> = match twins.is_empty() {
                true => blockers,
                false => {
                    let waits = |b: TxnId| twins.get(&b).copied().unwrap_or(b);
                    blockers.into_iter().map(waits).collect()
                }
            };
            first.get_or_insert_with(|| blockers.iter().copied().collect());
            for b in blockers {
                if b == me {
                    return true;
                }
                if seen.insert(b) {
                    todo.push(b);
                }
            }
        }
        false
    }
}

type Ids = HashSet<TxnId, foldhash::fast::FixedState>;

/// A queue while cycles are looked for. A wait of the cycle, if there is one, was entered before and does not end, so it stands here.
#[derive(Default)]
struct Standing {
    holders: Vec<(TxnId, LockMode)>,
    waiters: Vec<(TxnId, LockMode)>,
    places: HashMap<TxnId, usize, foldhash::fast::FixedState>,
    /// By mode: who conflicts with it among the holders, and among as many waiters, has been named.
    named: HashMap<LockMode, usize, foldhash::fast::FixedState>,
}

impl Standing {
    /// Who stands before `who`, less those that have been named for his mode already: all of them but `who` himself were met then.
    /// `first`: it is his wait that the search began with, and to wait for oneself as a holder is no cycle.
    fn blockers(&mut self, who: TxnId, first: bool) -> Vec<TxnId> {
        let Some(&at) = self.places.get(&who) else {
            return vec![];
        };
        let mode = self.waiters[at].1;
        let named = self.named.get(&mode).copied();
        let holders = match named {
            None => &self.holders[..],
            Some(_) => &[],
        };
        let before = self.waiters.get(named.unwrap_or(0)..at).unwrap_or_default();
        let all = holders.iter().chain(before);
        let all = all.filter(|b| b.0 != who && b.1.conflicts(mode));
        let all = all.map(|b| b.0).collect();
        if !first {
            self.named.insert(mode, named.unwrap_or(0).max(at));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_mode_keeps_away_what_either_does() {
        use LockMode::{Delta, KeyShare, NoKeyUpdate, Share, Update};
        let all = [KeyShare, Share, Delta, NoKeyUpdate, Update];
        for a in all {
            for b in all {
                assert_eq!(a.conflicts(b), b.conflicts(a), "{a:?} {b:?}");
                for c in all
                    .into_iter()
                    .filter(|c| a.conflicts(*c) || b.conflicts(*c))
                {
                    assert!(a.join(b).conflicts(c), "{a:?} and {b:?} against {c:?}");
                }
            }
        }
        assert!(!Delta.conflicts(Delta) && Delta.conflicts(Share) && !Delta.conflicts(KeyShare));
    }

    const A: LockName = LockName { space: 1, hash: 1 };
    const B: LockName = LockName { space: 1, hash: 2 };

    #[test]
    fn modes_conflict_as_in_postgresql() {
        use LockMode::*;
        let table = [
            (KeyShare, [false, false, false, true]),
            (Share, [false, false, true, true]),
            (NoKeyUpdate, [false, true, true, true]),
            (Update, [true, true, true, true]),
        ];
        for (a, row) in table {
            for (b, conflict) in [KeyShare, Share, NoKeyUpdate, Update].into_iter().zip(row) {
                assert_eq!(a.conflicts(b), conflict, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_queue_is_served_in_order_and_emptied() {
        let t = LockTable::default();
        assert!(matches!(
            t.acquire(1, A, LockMode::Update, true),
            (Attempt::Granted, true)
        ));
        let (Attempt::Wait(w2), _) = t.acquire(2, A, LockMode::Update, true) else {
            panic!("should wait")
        };
        let (Attempt::Wait(w3), _) = t.acquire(3, A, LockMode::Update, true) else {
            panic!("should wait")
        };
        t.release(1, A);
        assert!(w2.0.0.lock().0 && !w3.0.0.lock().0);
        t.release(2, A);
        assert!(w3.0.0.lock().0);
        t.release(3, A);
        assert_eq!(t.holder(9, A, LockMode::KeyShare), None);
        assert!(t.shards.iter().all(|s| s.lock().is_empty()));
    }

    #[test]
    fn one_that_gives_up_lets_those_pass_that_it_alone_kept_off() {
        let is_given = |w: &LockWait| w.0.0.lock().0;
        let wait = |t: &LockTable, who, mode| match t.acquire(who, A, mode, true).0 {
            Attempt::Wait(w) => w,
            _ => panic!("should wait"),
        };
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Table(TableModes::ROW_EXCLUSIVE), true);
        let share = wait(&t, 2, LockMode::Table(TableModes::SHARE));
        let all = wait(&t, 3, LockMode::Table(TableModes::ACCESS_EXCLUSIVE));
        let row = wait(&t, 4, LockMode::Table(TableModes::ROW_SHARE));
        t.stop_waiting(3, A);
        assert!(is_given(&row) && !is_given(&share) && !is_given(&all));
        t.release(1, A);
        assert!(is_given(&share));
    }

    #[test]
    fn the_wait_that_closes_a_cycle_fails() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Update, true);
        t.acquire(2, B, LockMode::Update, true);
        assert!(matches!(
            t.acquire(1, B, LockMode::Update, true).0,
            Attempt::Wait(_)
        ));
        assert!(matches!(
            t.acquire(2, A, LockMode::Update, true).0,
            Attempt::Deadlock
        ));
        t.release(2, B);
        assert!(matches!(
            t.acquire(1, B, LockMode::Update, true).0,
            Attempt::Granted
        ));
    }

    #[test]
    fn a_long_queue_is_gone_through_once() {
        const N: TxnId = 400;
        for mode in [
            LockMode::Update,
            LockMode::Table(TableModes::ACCESS_EXCLUSIVE),
        ] {
            let t = LockTable::default();
            for who in 0..=N {
                t.acquire(who, A, mode, true);
            }
            let mut queue = t.standing(A);
            let mut named = queue.blockers(N, true).len();
            assert_eq!(named, N as usize);
            for who in (0..N).rev() {
                named += queue.blockers(who, false).len();
            }
            assert!(named <= 2 * N as usize, "{named}");
        }
    }

    /// The search as it would be without what it leaves out.
    fn closes_cycle_plainly(
        t: &LockTable,
        me: TxnId,
        waiting: &HashMap<TxnId, (LockName, Arc<WaitState>)>,
    ) -> bool {
        let (mut seen, mut todo) = (HashSet::new(), vec![me]);
        while let Some(who) = todo.pop() {
            let Some(&(name, _)) = waiting.get(&who) else {
                continue;
            };
            for b in t.standing(name).blockers(who, true) {
                if b == me {
                    return true;
                }
                if seen.insert(b) {
                    todo.push(b);
                }
            }
        }
        false
    }

    #[test]
    fn the_search_misses_no_cycle_and_invents_none() {
        let modes = [
            LockMode::KeyShare,
            LockMode::Share,
            LockMode::NoKeyUpdate,
            LockMode::Update,
        ];
        let mut dice = 1u64;
        let mut roll = |n: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        let (mut cycles, mut waits) = (0, 0);
        for _ in 0..300 {
            let t = LockTable::default();
            for _ in 0..60 {
                let me = 1 + roll(8);
                if t.waiting.lock().contains_key(&me) {
                    continue;
                }
                let name = LockName {
                    space: 1,
                    hash: roll(4),
                };
                let mode = modes[roll(4) as usize];
                // As `acquire` does where the lock is not to be had, and back.
                let state = Arc::new(WaitState::default());
                if let Some(q) = t.shard(name).lock().get_mut(&name) {
                    let entry = (me, mode, state.clone());
                    match q.holders.iter().any(|h| h.0 == me) {
                        true => q.waiters.push_front(entry),
                        false => q.waiters.push_back(entry),
                    }
                }
                let mut waiting = t.waiting.lock();
                waiting.insert(me, (name, state));
                let found = t.closes_cycle(me, &waiting);
                assert_eq!(found, closes_cycle_plainly(&t, me, &waiting));
                cycles += usize::from(found);
                waiting.remove(&me);
                drop(waiting);
                if let Some(q) = t.shard(name).lock().get_mut(&name) {
                    q.waiters.retain(|w| w.0 != me);
                }
                let wait = t.acquire(me, name, mode, true).0;
                waits += usize::from(matches!(wait, Attempt::Wait(_)));
            }
        }
        assert!(cycles > 100 && waits > 100, "{cycles} {waits}");
    }

    #[test]
    fn two_sharers_who_want_more_deadlock() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Share, true);
        t.acquire(2, A, LockMode::Share, true);
        assert!(matches!(
            t.acquire(1, A, LockMode::Update, true).0,
            Attempt::Wait(_)
        ));
        assert!(matches!(
            t.acquire(2, A, LockMode::Update, true).0,
            Attempt::Deadlock
        ));
    }

    /// 2 is given A, and gives up before he hears of it; the word comes when he waits for B.
    #[test]
    fn a_grant_that_is_told_late_hides_no_other_wait() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Update, true);
        t.acquire(2, A, LockMode::Update, true);
        t.acquire(3, B, LockMode::Update, true);
        let granted = t.hand_on(1, A, Leaving::Lock);
        t.stop_waiting(2, A);
        assert!(matches!(
            t.acquire(2, B, LockMode::Update, true).0,
            Attempt::Wait(_)
        ));
        t.tell(granted);
        assert!(matches!(
            t.acquire(3, A, LockMode::Update, true).0,
            Attempt::Deadlock
        ));
    }

    /// 10 bears the advisory locks of the session whose transaction is 1.
    #[test]
    fn a_cycle_through_twins_is_found_from_both_sides() {
        for patient in [false, true] {
            let t = LockTable::default();
            t.acquire(10, A, LockMode::Update, true);
            t.acquire(2, B, LockMode::Update, true);
            let how = |twin| Waiter {
                twin: Some(twin),
                patient,
            };
            let (first, _) = t.acquire_as(1, B, LockMode::Update, true, how(10));
            assert!(matches!(first, Attempt::Wait(_)));
            assert!(!t.is_deadlocked(1));
            let (second, _) = t.acquire_as(2, A, LockMode::Update, true, how(20));
            assert_eq!(matches!(second, Attempt::Wait(_)), patient);
            assert_eq!(t.is_deadlocked(1), patient);
            assert_eq!(t.is_deadlocked(2), patient);
        }
    }

    #[test]
    fn a_weaker_mode_lets_sharers_in() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Update, true);
        let (Attempt::Wait(w), _) = t.acquire(2, A, LockMode::Share, true) else {
            panic!("should wait")
        };
        assert_eq!(t.blockers(2), [1]);
        t.weaken(1, A, LockMode::Share);
        assert!(w.0.0.lock().0);
        assert_eq!(t.list(1).len(), 2);
    }

    #[test]
    fn who_waits_for_more_of_what_he_has_is_to_release_it_once() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::Share, true);
        t.acquire(2, A, LockMode::Share, true);
        let (Attempt::Wait(_), false) = t.acquire(1, A, LockMode::Update, true) else {
            panic!("should wait, and has it already")
        };
        t.release(1, A);
        t.release(2, A);
        assert!(t.shards.iter().all(|s| s.lock().is_empty()));
    }
}
