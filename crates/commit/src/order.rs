//! Positions in order, and a ring in which commits that are on their way stand until they are logged.
//!
//! ```text
//!   begin (position, ticket)    ready (installed, with its record) | abort (a hole)          drain (to the log, in order)
//!   next ─────────────────▶ ring[ticket % size] ──────────────────────▶ installed ────────────────────▶ decided, published
//! ```
//! A ticket is a place in a dense count, a position is not (epochs leave gaps), so the ring is indexed by tickets. The only thing
//! that all commits share is the counter, behind one lock that is held for a few instructions.
//!
//! **Progress.** `installed` is the position of the last ticket up to which all are ready or aborted. Who finishes a ticket advances it
//! as far as it goes, if nobody else is doing so; who does looks once more after letting go, so that no finished ticket is left behind.
//! The drain takes only what is installed, in ticket order.
//!
//! **Who is in a hurry.** The one who drains sleeps when there is nothing to do. A commit that somebody waits for wakes him
//! ([`Order::notify`]). One that nobody waits for yet ([`Order::nudge`]) does so only when he has slept for long: after a group that nobody
//! was waiting for he gathers for a moment ([`Order::gather`]), so that a stream of such commits costs a wake-up and a group each moment,
//! not each commit.
//!
//! **When the log does not keep up**, or the disk is full, commits wait before they lock anything ([`Order::wait_for_room`]): what the log waits
//! for may be a commit that waits for these locks. `MAX_PENDING_BYTES` bounds what waits for the log, `MAX_PENDING` how many commits; those
//! that had passed go a little above that.

use base::{Position, Watermarks};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Commits between the counter and the log.
const RING: usize = 1 << 14;

/// Commits that may wait for the log. The rest of the ring is for those who found room together: more than there are threads.
const MAX_PENDING: u64 = RING as u64 / 2;

/// Bytes of records that may wait for the log.
const MAX_PENDING_BYTES: u64 = 256 << 20;

/// What the one who drains is doing.
const AWAKE: u8 = 0;
const GATHERING: u8 = 1;
const SLEEPING: u8 = 2;

const EMPTY: u8 = 0;
const PENDING: u8 = 1;
const READY: u8 = 2;
const ABORTED: u8 = 3;

struct Slot {
    state: AtomicU8,
    position: AtomicU64,
    record: Mutex<(Vec<u8>, Vec<u8>)>,
}

struct Next {
    position: Position,
    /// The last one given, or what was installed before.
    given: Position,
    ticket: u64,
    closed: bool,
}

/// A commit's record on its way to the log.
#[derive(Debug)]
pub struct Logged {
    pub position: Position,
    pub heads: Vec<u8>,
    pub data: Vec<u8>,
}

/// See the head of the file.
pub struct Order {
    next: Mutex<Next>,
    ring: Box<[Slot]>,
    marks: Arc<Watermarks>,
    /// Tickets below are given.
    begun: AtomicU64,
    /// Tickets below are ready or aborted.
    installed: AtomicU64,
    advancing: Mutex<()>,
    /// Tickets below are drained.
    drained: AtomicU64,
    pending_bytes: AtomicU64,
    room: (Mutex<()>, Condvar),
    work: (Mutex<()>, Condvar),
    sleep: AtomicU8,
    /// Somebody waits for what is installed.
    hurry: AtomicBool,
}

impl Order {
    /// The order that goes on after `last`, in a new epoch.
    pub fn new(last: Position, marks: Arc<Watermarks>) -> Order {
        let slot = |_| Slot {
            state: AtomicU8::new(EMPTY),
            position: AtomicU64::new(0),
            record: Mutex::default(),
        };
        Order {
            next: Mutex::new(Next {
                position: last.next_epoch(),
                given: marks.installed.get(),
                ticket: 0,
                closed: false,
            }),
            ring: (0..RING).map(slot).collect(),
            marks,
            begun: AtomicU64::new(0),
            installed: AtomicU64::new(0),
            advancing: Mutex::new(()),
            drained: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            room: Default::default(),
            work: Default::default(),
            sleep: AtomicU8::new(AWAKE),
            hurry: AtomicBool::new(false),
        }
    }

    fn slot(&self, ticket: u64) -> &Slot {
        &self.ring[ticket as usize % RING]
    }

    /// Waits while too much waits for the log. Before [`Order::begin`], by who holds nothing yet that another commit waits for. `check_cancelled` is asked
    /// every few milliseconds: an error of it ends the wait.
    pub fn wait_for_room<E>(&self, check_cancelled: impl Fn() -> Result<(), E>) -> Result<(), E> {
        while self.is_full() && !self.next.lock().closed {
            check_cancelled()?;
            let mut held = self.room.0.lock();
            self.room.1.wait_for(&mut held, Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let drained = self.drained.load(Ordering::Acquire);
        self.pending_bytes.load(Ordering::Relaxed) > MAX_PENDING_BYTES
            || self.begun.load(Ordering::Relaxed).saturating_sub(drained) >= MAX_PENDING
    }

    /// The next position; `None` when the order is closed.
    pub fn begin(&self) -> Option<(Position, u64)> {
        let mut n = self.next.lock();
        if n.closed {
            return None;
        }
        let pending = n.ticket - self.drained.load(Ordering::Acquire);
        assert!(pending < RING as u64, "who begins has waited for room");
        let given = (n.position, n.ticket);
        n.given = n.position;
        n.position = n.position.next();
        n.ticket += 1;
        self.begun.store(n.ticket, Ordering::Relaxed);
        let slot = self.slot(given.1);
        slot.position.store(given.0.as_u64(), Ordering::Relaxed);
        let was = slot.state.swap(PENDING, Ordering::Release);
        assert_eq!(
            was, EMPTY,
            "a slot of the ring is used again only after it was drained"
        );
        Some(given)
    }

    /// The commit of this ticket is installed; this is its record. The one who drains is told.
    pub fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        self.ready_quietly(ticket, heads, data);
        self.notify();
    }

    /// The same, and telling him is left to the caller.
    pub fn ready_quietly(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        let slot = self.slot(ticket);
        self.pending_bytes
            .fetch_add((heads.len() + data.len()) as u64, Ordering::Relaxed);
        *slot.record.lock() = (heads, data);
        let was = slot.state.swap(READY, Ordering::SeqCst);
        assert_eq!(was, PENDING, "a ticket is finished once");
        self.advance();
    }

    /// The position of this ticket stays empty.
    pub fn abort(&self, ticket: u64) {
        let was = self.slot(ticket).state.swap(ABORTED, Ordering::SeqCst);
        assert_eq!(was, PENDING, "a ticket is finished once");
        self.advance();
        self.notify();
    }

    /// Tells the one who drains that somebody waits for what is installed.
    pub fn notify(&self) {
        if self.has_work() {
            self.hurry.store(true, Ordering::SeqCst);
            self.wake_from(GATHERING);
        }
    }

    /// Tells him, if he sleeps, that there is something, which can wait for a moment.
    pub fn nudge(&self) {
        if self.has_work() {
            self.wake_from(SLEEPING);
        }
    }

    fn wake_from(&self, at_least: u8) {
        if self.sleep.load(Ordering::SeqCst) >= at_least {
            let _held = self.work.0.lock();
            self.work.1.notify_one();
        }
    }

    /// Whether something is installed and not drained.
    pub fn has_work(&self) -> bool {
        self.installed.load(Ordering::SeqCst) != self.drained.load(Ordering::Acquire)
    }

    fn advance(&self) {
        loop {
            let Some(held) = self.advancing.try_lock() else {
                return;
            };
            let mut at = self.installed.load(Ordering::Relaxed);
            let from = at;
            let mut position = Position::ZERO;
            while at - self.drained.load(Ordering::Acquire) < RING as u64 {
                let slot = self.slot(at);
                if slot.state.load(Ordering::SeqCst) < READY {
                    break;
                }
                position = Position::from_u64(slot.position.load(Ordering::Relaxed));
                at += 1;
            }
            if at > from {
                self.marks.installed.raise(position);
                self.installed.store(at, Ordering::SeqCst);
            }
            drop(held);
            // Somebody may have finished the next ticket after it was looked at and failed to get the lock.
            // Since then others may have advanced, and the drain with them, past `at`: then it is theirs to look.
            let next = self.installed.load(Ordering::SeqCst) == at
                && at.saturating_sub(self.drained.load(Ordering::Acquire)) < RING as u64
                && self.slot(at).state.load(Ordering::SeqCst) >= READY;
            if !next {
                return;
            }
        }
    }

    /// Takes what is installed and not yet drained: `max_bytes` at most, or one commit that is larger. One at a time may drain. The position of the
    /// last ticket taken, holes included; none when there is nothing.
    pub fn drain(&self, max_bytes: usize, out: &mut Vec<Logged>) -> Option<Position> {
        let from = self.drained.load(Ordering::Relaxed);
        let end = self.installed.load(Ordering::SeqCst);
        let (mut at, mut bytes) = (from, 0);
        let mut last = None;
        while at < end && bytes < max_bytes {
            let slot = self.slot(at);
            let position = Position::from_u64(slot.position.load(Ordering::Relaxed));
            if slot.state.load(Ordering::Acquire) == READY {
                let mut record = slot.record.lock();
                let size = record.0.len() + record.1.len();
                // The log takes no group of more than its limit, to which one commit alone may come near.
                if bytes > 0 && bytes + size > max_bytes {
                    break;
                }
                let (heads, data) = std::mem::take(&mut *record);
                drop(record);
                bytes += size;
                out.push(Logged {
                    position,
                    heads,
                    data,
                });
            }
            slot.state.store(EMPTY, Ordering::Release);
            last = Some(position);
            at += 1;
        }
        self.pending_bytes
            .fetch_sub(bytes as u64, Ordering::Relaxed);
        self.drained.store(at, Ordering::Release);
        if at > from {
            self.room.1.notify_all();
        }
        last
    }

    /// Waits until there is something to drain, or for this long. For the one who drains.
    pub fn wait_for_work(&self, at_most: Duration) {
        if self.has_work() {
            return;
        }
        let mut held = self.work.0.lock();
        self.sleep.store(SLEEPING, Ordering::SeqCst);
        if !self.has_work() {
            self.work.1.wait_for(&mut held, at_most);
        }
        self.sleep.store(AWAKE, Ordering::SeqCst);
    }

    /// Waits for this long, or until somebody is in a hurry. For the one who drains.
    pub fn gather(&self, at_most: Duration) {
        let mut held = self.work.0.lock();
        self.sleep.store(GATHERING, Ordering::SeqCst);
        if !self.hurry.load(Ordering::SeqCst) {
            self.work.1.wait_for(&mut held, at_most);
        }
        self.sleep.store(AWAKE, Ordering::SeqCst);
    }

    /// Whether somebody has been in a hurry since this was asked last. What he waits for is installed.
    pub fn take_hurry(&self) -> bool {
        self.hurry.load(Ordering::Relaxed) && self.hurry.swap(false, Ordering::SeqCst)
    }

    /// Begins the next epoch if this one has commits. `node` calls it on its clock.
    pub fn tick(&self) {
        let mut n = self.next.lock();
        if n.position.order() > 0 {
            n.position = n.position.next_epoch();
        }
    }

    /// No position is given any more. What has one goes on to the log.
    pub fn close(&self) {
        self.next.lock().closed = true;
    }

    /// Goes on after `last`, in a new epoch: for an order that has given nothing yet, or was closed and is idle.
    pub fn open_after(&self, last: Position) {
        let mut n = self.next.lock();
        assert!(
            n.ticket == self.drained.load(Ordering::Acquire),
            "an order goes on elsewhere only when nothing is on its way"
        );
        n.position = n.position.max(last.next_epoch());
        n.given = n.given.max(self.marks.installed.get());
        n.closed = false;
    }

    /// The next position that will be given.
    pub fn next_position(&self) -> Position {
        self.next.lock().position
    }

    /// The last position that was given: no commit that anybody has seen is above it, and it is installed or given up soon.
    pub fn last_given(&self) -> Position {
        self.next.lock().given
    }

    /// Whether every commit that took a position has been drained.
    pub fn is_idle(&self) -> bool {
        let n = self.next.lock();
        n.ticket == self.drained.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn always() -> Result<(), ()> {
        Ok(())
    }

    fn order() -> Order {
        Order::new(Position::new(4, 7), Arc::default())
    }

    #[test]
    fn installed_waits_for_the_slowest_and_skips_holes() {
        let o = order();
        let (p1, t1) = o.begin().unwrap();
        let (p2, t2) = o.begin().unwrap();
        let (p3, t3) = o.begin().unwrap();
        assert_eq!((p1, p3), (Position::new(5, 0), Position::new(5, 2)));
        o.ready(t2, vec![2], vec![]);
        assert_eq!(o.marks.installed.get(), Position::ZERO);
        let mut out = vec![];
        assert_eq!(o.drain(1 << 20, &mut out), None);
        o.ready(t1, vec![1], vec![]);
        assert_eq!(o.marks.installed.get(), p2);
        o.abort(t3);
        assert_eq!(o.drain(1 << 20, &mut out), Some(p3));
        assert_eq!(out.iter().map(|l| l.position).collect::<Vec<_>>(), [p1, p2]);
        assert!(o.is_idle());
        o.tick();
        assert_eq!(o.begin().unwrap().0, Position::new(6, 0));
        o.close();
        assert_eq!(o.begin(), None);
    }

    #[test]
    fn many_threads_leave_no_gap() {
        let o = order();
        let mut seen = vec![];
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let o = &o;
                s.spawn(move || {
                    for i in 0..20_000u64 {
                        o.wait_for_room(always).unwrap();
                        let (_, ticket) = o.begin().unwrap();
                        if (i + t) % 7 == 0 {
                            o.abort(ticket)
                        } else {
                            o.ready(ticket, vec![t as u8], vec![])
                        }
                    }
                });
            }
            while seen.len()
                < 4 * 20_000
                    - (0..4)
                        .map(|t| (0..20_000).filter(|i| (i + t) % 7 == 0).count())
                        .sum::<usize>()
            {
                o.wait_for_work(Duration::from_millis(1));
                o.drain(1 << 20, &mut seen);
            }
        });
        assert!(
            seen.windows(2).all(|w| w[0].position < w[1].position),
            "drained in order"
        );
    }

    #[test]
    fn a_large_commit_is_drained_by_itself() {
        let o = order();
        let sizes = [3, 4, 0, 3, 100, 1, 10, 1];
        for n in sizes {
            let (_, ticket) = o.begin().unwrap();
            match n {
                0 => o.abort(ticket),
                n => o.ready(ticket, vec![0; 1], vec![0; n - 1]),
            }
        }
        let next = || {
            let mut out = vec![];
            let last = o.drain(10, &mut out);
            let end = out.last().map(|l| l.position);
            assert!(end <= last);
            let bytes = |l: &Logged| l.heads.len() + l.data.len();
            out.iter().map(bytes).collect::<Vec<_>>()
        };
        let groups: [&[usize]; 6] = [&[3, 4, 3], &[100], &[1], &[10], &[1], &[]];
        groups.iter().for_each(|g| assert_eq!(next(), *g));
        assert!(o.is_idle());
        assert_eq!(o.pending_bytes.load(Ordering::Relaxed), 0);
    }

    /// What waits for the log is bounded, and who has a position or wants one never waits for that.
    #[test]
    fn who_waits_for_room_holds_nothing() {
        let o = order();
        assert_eq!(o.last_given(), Position::ZERO, "nobody was given any");
        let (_, slow) = o.begin().unwrap();
        let (p, big) = o.begin().unwrap();
        o.ready(big, vec![], vec![0; MAX_PENDING_BYTES as usize + 1]);
        assert!(o.is_full());
        // Who waits is told when it is in vain.
        let asked = AtomicU64::new(0);
        let told = o.wait_for_room(|| match asked.fetch_add(1, Ordering::Relaxed) {
            0..3 => Ok(()),
            n => Err(n),
        });
        assert_eq!(told, Err(3));
        // One that had found room before.
        let (_, third) = o.begin().unwrap();
        o.abort(third);
        assert!(o.last_given() > p);
        o.ready(slow, vec![1], vec![]);
        let mut out = vec![];
        while o.drain(1 << 20, &mut out).is_some() {}
        assert!(!o.is_full());
        o.wait_for_room(always).unwrap();
        for _ in 0..MAX_PENDING {
            o.begin().unwrap();
        }
        assert!(o.is_full());
        o.begin().unwrap();
    }
}
