//! Counters of a node's transactions: commits, and those told to try again by cause.
//!
//! Left out on purpose: time, which the metrics of the server measure.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::range::Spared;

/// Why a transaction was told to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A row that was read by key changed, in a column that the statement looked at, before commit or before the snapshot moved; or its
    /// absence did.
    ReadChanged,
    /// A row came into, left or changed in a range that was read, in a column that the statement looked at; and its condition takes the
    /// row before or after, as far as validation knows it (`range`).
    RangeChanged,
    /// The same in a scan of a whole table.
    TableChanged,
    /// A row that was written had been changed, by an optimistic commit or since the snapshot.
    WriteConflict,
    /// An optimistic commit met a row lock.
    RowLocked,
    /// The snapshot had to move while a portal was open.
    PortalOpen,
    Deadlock,
    /// It had read what a committing transaction changes, which had read what it was about to change (`contention`).
    Circle,
    SchemaChanged,
}

impl Cause {
    pub const ALL: [Cause; 9] = [
        Cause::ReadChanged,
        Cause::RangeChanged,
        Cause::TableChanged,
        Cause::WriteConflict,
        Cause::RowLocked,
        Cause::PortalOpen,
        Cause::Deadlock,
        Cause::Circle,
        Cause::SchemaChanged,
    ];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ReadChanged => "read_changed",
            Cause::RangeChanged => "range_changed",
            Cause::TableChanged => "table_changed",
            Cause::WriteConflict => "write_conflict",
            Cause::RowLocked => "row_locked",
            Cause::PortalOpen => "portal_open",
            Cause::Deadlock => "deadlock",
            Cause::Circle => "circle",
            Cause::SchemaChanged => "schema_changed",
        }
    }
}

/// Counters, spread over cache lines by thread where every transaction counts.
#[derive(Default)]
pub struct Stats {
    commits: [Padded; 8],
    /// Deltas of split columns, by outcome.
    deltas: [[Padded; 8]; 3],
    aborts: [AtomicU64; Cause::ALL.len()],
    spared: [AtomicU64; Spared::ALL.len()],
    moves: AtomicU64,
}

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Padded(pub(crate) AtomicU64);

impl Stats {
    pub(crate) fn abort(&self, cause: Cause) {
        self.aborts[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self, spared: Option<Spared>) {
        if let Some(by) = spared {
            self.spared[by as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.commits[mine()].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn delta(&self, outcome: usize) {
        self.deltas[outcome][mine()]
            .0
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Deltas of split columns that were asked for, by [`Outcome`](crate::Outcome). A statement that runs again counts again.
    pub fn deltas(&self) -> [u64; 3] {
        let sum = |all: &[Padded; 8]| all.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        [0, 1, 2].map(|o| sum(&self.deltas[o]))
    }

    pub(crate) fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Transactions that wrote and committed.
    pub fn commits(&self) -> u64 {
        self.commits
            .iter()
            .map(|c| c.0.load(Ordering::Relaxed))
            .sum()
    }

    /// Transactions told to try again, by cause.
    pub fn aborts(&self, cause: Cause) -> u64 {
        self.aborts[cause as usize].load(Ordering::Relaxed)
    }

    /// Transactions that committed where a footprint of whole rows and ranges would have told them to try again, by what told that it does not
    /// matter: one that needed both counts as [`Spared::Predicate`].
    pub fn spared(&self, by: Spared) -> u64 {
        self.spared[by as usize].load(Ordering::Relaxed)
    }

    /// Snapshots moved forward instead.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }
}

/// The counter of this thread among those that are spread.
fn mine() -> usize {
    thread_local! {
        static MINE: usize = {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed) as usize % 8
        };
    }
    MINE.with(|m| *m)
}
