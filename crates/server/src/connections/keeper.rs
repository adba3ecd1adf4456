//! Keeps the server's memory within its bounds: tells the account of what is the rows', and gives free pages back to the system.
//!
//! The allocator keeps pages that are free (`store::keep_freed_pages`), because rows want them again at once. After a statement that had much
//! they would stay for ever. So when what is taken has fallen far enough below what was taken since the last time, and stays there, every core is asked to
//! give its free pages back: each thread has a heap of its own.
//!
//! Left out on purpose: pages that are partly in use.

use super::Connections;
use sql::engine::Engine;

/// Bytes freed that are worth giving back.
const WORTH: i64 = 24 << 20;
/// Milliseconds between two times; after the second one memory that was freed a little later is given back, too.
const PAUSE: u64 = 2_000;
/// Milliseconds between two looks at what the trees of all tables take.
const TREES: u64 = 1_000;

/// See the head of the file.
pub(super) struct Keeper<'a, E: Engine> {
    connections: &'a Connections<E>,
    /// The most that was taken since pages were given back, and when that was. Bytes, milliseconds.
    peak: i64,
    given_at: u64,
    /// Once more, for what was freed beside the last time.
    again: bool,
    trees: u64,
    trees_at: u64,
}

impl<'a, E: Engine> Keeper<'a, E> {
    pub fn new(connections: &'a Connections<E>) -> Keeper<'a, E> {
        Keeper {
            connections,
            peak: 0,
            given_at: 0,
            again: false,
            trees: 0,
            trees_at: 0,
        }
    }

    /// To be called every few milliseconds.
    pub fn tick(&mut self, now: u64) {
        let engine = &self.connections.shared.engine;
        if now >= self.trees_at + TREES {
            self.trees = engine.tree_memory();
            self.trees_at = now;
        }
        let total = &self.connections.shared.sessions.memory;
        total.tick(engine.row_memory() + self.trees);
        let taken = base::memory::process();
        self.peak = self.peak.max(taken);
        let freed = self.peak - taken;
        if now >= self.given_at + PAUSE && (freed > WORTH.max(taken / 16) || self.again) {
            self.again = freed > WORTH.max(taken / 16);
            self.given_at = now;
            self.peak = taken;
            self.connections.cores.each(|| {
                base::memory::flush();
                store::give_pages_back();
            });
        }
    }
}
