//! Positions: one number per commit, in log order, and the watermarks made of them.
//!
//! ```text
//! Position  = epoch (40 bits) | order inside the epoch (24 bits)
//! primary:    decided <= published <= installed < next position to give;   acknowledged <= published
//!             decided <= flushed <= installed
//! replica:    visible <= min(applied, published at the primary);  applied <= scheduled <= received
//! ```
//! Position 0 is "before everything"; the first commit of a database has epoch 1.
//! Visibility follows the order of positions exactly: a snapshot is a prefix of the log.

use crate::region::Region;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Greatest number of a term. Its upper bits are milliseconds since 1970, so terms reach it in the year 2527: a greater one is a lie or
/// damage. Behind it 2^60 numbers are free, so that nothing wraps.
pub const MAX_TERM: u64 = 1 << 60;

/// Bits of a position that count inside its epoch.
pub const ORDER_BITS: u32 = 24;

/// A commit's place in the log order. Ordered; printed as `epoch.order`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Before every commit.
    pub const ZERO: Position = Position(0);
    /// After every commit.
    pub const MAX: Position = Position(u64::MAX);

    /// The position with this epoch and order; panics when either does not fit.
    pub fn new(epoch: u64, order: u32) -> Position {
        assert!(
            epoch < 1 << (64 - ORDER_BITS),
            "epoch {epoch} does not fit in 40 bits"
        );
        assert!(
            order < 1 << ORDER_BITS,
            "order {order} does not fit in 24 bits"
        );
        Position(epoch << ORDER_BITS | u64::from(order))
    }

    /// From the raw 64 bits, as logged.
    pub const fn from_u64(raw: u64) -> Position {
        Position(raw)
    }

    /// The raw 64 bits.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The epoch that this commit belongs to.
    pub const fn epoch(self) -> u64 {
        self.0 >> ORDER_BITS
    }

    /// The order inside the epoch.
    pub const fn order(self) -> u32 {
        (self.0 & ((1 << ORDER_BITS) - 1)) as u32
    }

    /// The next raw position (a full order spills into the next epoch).
    pub const fn next(self) -> Position {
        Position(self.0 + 1)
    }

    /// The greatest position before this one; ZERO has none before it and stays.
    pub const fn prev(self) -> Position {
        Position(self.0.saturating_sub(1))
    }

    /// A position in whose epoch or a later one a primary goes on that comes back with its log up to here. Before it went down it may
    /// have published more than is in its log (`synchronous_commit = off`), and readers may stand there: those positions stay empty for
    /// ever, so that their snapshots stay as they are. What had a position and was not in the log fits in two rings of `commit::Order`, and
    /// an epoch that has no commit does not end. (Nothing is published before it is durable until something of this life is: then the log
    /// shows the next life where this one stood.)
    pub const fn after_restart(self) -> Position {
        match self.0 {
            // A database that begins.
            0 => self,
            _ => self.skip(1 << 16),
        }
    }

    /// The same for the primary of a new term. It cannot know how far the old one came: as far as a replica can be behind, in
    /// epochs (46 hours, at 10 ms), and up to as far again, by the term: of two that begin after the same end, the second by force and without
    /// the first, neither gives positions that the other has given, and who waits for one of the first does not take it for one of the second.
    /// (Unless the first one led for hours; mostly it is a day that lies between them.)
    pub const fn after_promotion(self, term: u64) -> Position {
        let apart = term.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.skip((1 << 24) + apart)
    }

    const fn skip(self, epochs: u64) -> Position {
        Position(self.0 + (epochs << ORDER_BITS))
    }

    /// First position of the epoch after this one's.
    pub const fn next_epoch(self) -> Position {
        Position(((self.0 >> ORDER_BITS) + 1) << ORDER_BITS)
    }
}

impl std::str::FromStr for Position {
    type Err = &'static str;

    /// `epoch.order`, as it is printed.
    fn from_str(text: &str) -> Result<Position, &'static str> {
        let parts = text.split_once('.').and_then(|(epoch, order)| {
            let (epoch, order) = (epoch.parse::<u64>().ok()?, order.parse::<u32>().ok()?);
            let fits = epoch < 1 << (64 - ORDER_BITS) && order < 1 << ORDER_BITS;
            fits.then(|| Position::new(epoch, order))
        });
        parts.ok_or("a position is EPOCH.ORDER, such as 12.5")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.order())
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A position that only grows, shared between threads. One owner raises it, anybody reads it.
#[derive(Default)]
pub struct Watermark(AtomicU64);

impl Watermark {
    /// A watermark that stands at `at`.
    pub fn new(at: Position) -> Watermark {
        Watermark(AtomicU64::new(at.0))
    }

    /// Where it stands. Acquire: what was written before it was raised is visible.
    #[inline]
    pub fn get(&self) -> Position {
        Position(self.0.load(Ordering::Acquire))
    }

    /// Raises it to `to`; a lower value leaves it. Returns where it stood before.
    pub fn raise(&self, to: Position) -> Position {
        Position(self.0.fetch_max(to.0, Ordering::AcqRel))
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// The highest position that may be published: what every holder of a read lease has received. It falls where a lease begins.
pub struct Ceiling(AtomicU64);

impl Ceiling {
    /// No lease is held.
    pub const NONE: Position = Position(u64::MAX);

    /// Where it stands.
    #[inline]
    pub fn get(&self) -> Position {
        Position(self.0.load(Ordering::SeqCst))
    }

    /// From now on no more than this is published.
    pub fn set(&self, to: Position) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Default for Ceiling {
    fn default() -> Ceiling {
        Ceiling(AtomicU64::new(Ceiling::NONE.0))
    }
}

impl fmt::Debug for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ceiling::NONE => write!(f, "none"),
            at => write!(f, "{at}"),
        }
    }
}

/// The watermarks of a primary: `decided <= published <= installed`. `commit` and `node` raise them; everybody reads them.
/// At a replica all of them stand at what it shows.
#[derive(Debug, Default)]
pub struct Watermarks {
    /// Every position up to it is installed or aborted. Read-write transactions take their snapshots here.
    pub installed: Watermark,
    /// Durable in this node's own log.
    pub flushed: Watermark,
    /// Durable by the cluster's policy.
    pub decided: Watermark,
    /// max(decided, acknowledged): read-only work and replicas stand here; replies wait for it.
    pub published: Watermark,
    /// Flushed here and in the memory of as many replicas as the policy asks for.
    pub written: Watermark,
    /// Decided, and shown by as many replicas as the policy asks for.
    pub applied: Watermark,
    /// Nothing above it is published, and so neither decided nor acknowledged.
    pub ceiling: Ceiling,
    /// Where replicas read *published*: raised first, so that it is never behind what has been acknowledged.
    pub region: OnceLock<Arc<Region>>,
    /// What a start found ends here. No older versions are there, so snapshots stand here or above, also while that is not published.
    pub floor: Position,
}

impl Watermarks {
    /// All at one position (a start).
    pub fn new(at: Position) -> Watermarks {
        let mark = || Watermark::new(at);
        Watermarks {
            installed: mark(),
            flushed: mark(),
            decided: mark(),
            published: mark(),
            written: mark(),
            applied: mark(),
            ceiling: Ceiling::default(),
            region: OnceLock::new(),
            floor: at,
        }
    }

    /// Everything up to `to` is published, as far as the ceiling lets it.
    pub fn publish(&self, to: Position) {
        // Looked at after `to` was given: where the look misses a lease that begins, the lease begins above `to` (`replica::lease`).
        let to = to.min(self.ceiling.get());
        if to > self.published.get() {
            let region = self.region.get();
            if let Some(r) = region {
                r.publish(to);
            }
            self.published.raise(to);
            if let Some(r) = region {
                r.published(to);
            }
        }
    }

    /// A start: what is installed and flushed here is known; what is decided and published, others have to say.
    pub fn recovered(at: Position) -> Watermarks {
        let marks = Watermarks::unheard(at);
        marks.installed.raise(at);
        marks.flushed.raise(at);
        marks
    }

    /// A replica's start: it shows nothing before it has heard what is published.
    pub fn unheard(at: Position) -> Watermarks {
        Watermarks {
            floor: at,
            ..Watermarks::default()
        }
    }

    /// Whether what a start found is published.
    pub fn is_open(&self) -> bool {
        self.published.get() >= self.floor
    }

    /// Everything up to `to` is durable. *Published* goes first: it may not be below *decided*, so a ceiling holds both.
    pub fn decide(&self, to: Position) {
        self.flushed.raise(to);
        self.publish(to);
        self.decided.raise(to.min(self.published.get()));
        self.check();
    }

    /// A replica shows everything up to `to`.
    pub fn show(&self, to: Position) {
        self.installed.raise(to);
        self.decide(to);
    }

    /// The inequality, asserted. Read from the smallest up, so that growth meanwhile does no harm.
    pub fn check(&self) {
        let decided = self.decided.get();
        let flushed = self.flushed.get();
        let published = self.published.get();
        let installed = self.installed.get();
        assert!(
            decided <= published && published <= installed,
            "decided {decided} <= published {published} <= installed {installed} does not hold"
        );
        assert!(
            decided <= flushed && flushed <= installed,
            "decided {decided} <= flushed {flushed} <= installed {installed} does not hold"
        );
    }
}

/// What a reply waits for before it leaves. All but the first acknowledge a commit, and hold only what is published, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitWait {
    /// It shows, or depends on, what was read at this position: it must be published.
    Published(Position),
    /// It acknowledges the commit at this position as flushed here (`synchronous_commit = local`).
    Flushed(Position),
    /// ... and received by replicas (`remote_write`).
    Written(Position),
    /// It acknowledges the commit at this position as durable. *Published* is not enough: another session that asked for less
    /// (`synchronous_commit = off`) may have published a prefix with this commit in it.
    Decided(Position),
    /// ... and shown by replicas (`remote_apply`).
    Applied(Position),
}

impl CommitWait {
    /// The position waited for.
    pub fn position(self) -> Position {
        match self {
            CommitWait::Published(p)
            | CommitWait::Flushed(p)
            | CommitWait::Written(p)
            | CommitWait::Decided(p)
            | CommitWait::Applied(p) => p,
        }
    }

    /// Whether the reply may leave.
    pub fn is_released(self, marks: &Watermarks) -> bool {
        let level = match self {
            CommitWait::Published(_) => &marks.published,
            CommitWait::Flushed(_) => &marks.flushed,
            CommitWait::Written(_) => &marks.written,
            CommitWait::Decided(_) => &marks.decided,
            CommitWait::Applied(_) => &marks.applied,
        };
        let p = self.position();
        level.get() >= p && marks.published.get() >= p
    }
}

impl From<Position> for CommitWait {
    fn from(p: Position) -> CommitWait {
        CommitWait::Published(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_above_the_ceiling_is_published_or_decided() {
        let [at, above] = [Position::new(3, 7), Position::new(3, 8)];
        let marks = Watermarks::new(Position::new(3, 0));
        marks.installed.raise(above);
        marks.ceiling.set(at);
        marks.decide(above);
        assert_eq!((marks.published.get(), marks.decided.get()), (at, at));
        assert_eq!(marks.flushed.get(), above);
        assert!(!CommitWait::Flushed(above).is_released(&marks));
        marks.ceiling.set(Ceiling::NONE);
        marks.decide(above);
        assert!(CommitWait::Decided(above).is_released(&marks));
    }

    #[test]
    fn orders_by_epoch_then_order() {
        let p = Position::new(3, 7);
        assert_eq!((p.epoch(), p.order()), (3, 7));
        assert!(Position::new(3, 7) < Position::new(3, 8));
        assert!(Position::new(3, (1 << 24) - 1) < Position::new(4, 0));
        assert_eq!(Position::new(3, (1 << 24) - 1).next(), Position::new(4, 0));
        assert_eq!(p.next_epoch(), Position::new(4, 0));
        assert_eq!(p.to_string(), "3.7");
    }

    #[test]
    fn a_watermark_never_falls() {
        let w = Watermark::new(Position::new(2, 0));
        w.raise(Position::new(1, 5));
        assert_eq!(w.get(), Position::new(2, 0));
        w.raise(Position::new(2, 1));
        assert_eq!(w.get(), Position::new(2, 1));
    }
}
