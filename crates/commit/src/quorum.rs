//! What is durable by the cluster's policy, from what is flushed here and what replicas have acknowledged.
//!
//! ```text
//! replicas wanted: N          decided                              written                              applied
//! 0                           flushed                              flushed                              min(flushed, lowest visible of all that follow)
//! N >= 1                      min(flushed, N-th highest persisted) min(flushed, N-th highest received)  min(decided, N-th highest visible)
//! ```
//! With N = 0 nobody is waited for, so *applied*, which is about replicas, means those that follow now (commit-wait). A replica that has left
//! counts no more: what only it had acknowledged may not be promised for later commits. Nothing that was decided is taken back;
//! callers raise watermarks.
//!
//! N counts replicas, not connections. One that is cut off without a word and connects anew has two connections here until the silence of the
//! older is noticed; of connections of one name only the newest that has acknowledged counts. Two replicas of one name are one, which
//! errs on the safe side. (*applied* with N = 0 waits for every connection: there the safe side is the other one.)
//!
//! **What commits wait for** ([`Quorum::awaits`]). With N >= 1 commits wait for each replica whose acknowledgements come before N others have
//! acknowledged as much. Commits do not wait for a replica that came after N others [`LATE`] times in a row: its acknowledgements may come later.
//! When a quicker replica is gone or stands still, the next acknowledgement of the slower one is not late, and commits wait for it again.
//!
//! Left out on purpose: weights and named groups of replicas.

use base::Position;
use std::collections::{BTreeMap, BTreeSet};

/// What a replica has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// The term that it follows.
    pub term: u64,
    /// In its memory.
    pub received: Position,
    /// In its log, flushed.
    pub persisted: Position,
    /// Shown to its readers.
    pub visible: Position,
}

/// How far each level reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub decided: Position,
    pub written: Position,
    pub applied: Position,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Quorum {
    wanted: usize,
    term: u64,
    /// By connection; a newer one has a higher number.
    replicas: BTreeMap<u64, Replica>,
}

#[derive(Clone, Debug)]
struct Replica {
    name: String,
    acked: Acked,
    /// Its newest words that came when enough others had said as much.
    late: u32,
}

/// Words of a replica that are late in a row, after which no commit waits for it.
const LATE: u32 = 64;

impl Quorum {
    /// `wanted`: how many replicas must hold a commit.
    pub fn new(wanted: usize) -> Quorum {
        Quorum {
            wanted,
            ..Quorum::default()
        }
    }

    /// How many replicas must hold a commit.
    pub fn replicas(&self) -> usize {
        self.wanted
    }

    /// From now on so many must hold one.
    pub fn want(&mut self, wanted: usize) {
        self.wanted = wanted;
        self.wait_for_all();
    }

    fn wait_for_all(&mut self) {
        self.replicas.values_mut().for_each(|r| r.late = 0);
    }

    /// Whether a commit may wait for what is acknowledged over this connection.
    pub fn awaits(&self, connection: u64) -> bool {
        let late = self.replicas.get(&connection).map_or(0, |r| r.late);
        self.wanted > 0 && late < LATE
    }

    /// Whether enough replicas beside the one of this name have come this far.
    fn is_reached(&self, name: &str, of: impl Fn(&Acked) -> Position, at: Position) -> bool {
        let others = self.replicas.values().filter(|r| r.name != name);
        let have = others.filter(|r| of(&r.acked) >= at);
        let names: BTreeSet<&str> = have.map(|r| &*r.name).collect();
        names.len() >= self.wanted
    }

    /// Acknowledgements of older terms do not count from here on.
    pub fn begin_term(&mut self, term: u64) {
        assert!(term >= self.term, "terms only grow");
        self.term = term;
        self.replicas.retain(|_, r| r.acked.term >= term);
    }

    /// A replica of this name says over a connection how far it is. Its marks only grow while it follows.
    pub fn acked(&mut self, connection: u64, name: &str, acked: Acked) {
        if acked.term < self.term {
            return;
        }
        let is_late = self.wanted > 0
            && self.is_reached(name, |a| a.persisted, acked.persisted)
            && self.is_reached(name, |a| a.received, acked.received);
        let new = || Replica {
            name: name.to_owned(),
            acked: Acked::default(),
            late: 0,
        };
        let r = self.replicas.entry(connection).or_insert_with(new);
        let a = &mut r.acked;
        if acked.persisted > a.persisted || acked.received > a.received {
            r.late = if is_late { r.late.saturating_add(1) } else { 0 };
        }
        a.term = acked.term;
        a.received = a.received.max(acked.received);
        a.persisted = a.persisted.max(acked.persisted);
        a.visible = a.visible.max(acked.visible);
    }

    /// A connection is no more.
    pub fn left(&mut self, connection: u64) {
        self.replicas.remove(&connection);
        self.wait_for_all();
    }

    /// The levels when everything up to `flushed` is durable here.
    pub fn levels(&self, flushed: Position) -> Levels {
        if self.wanted == 0 {
            let lowest = self.replicas.values().map(|r| r.acked.visible).min();
            return Levels {
                decided: flushed,
                written: flushed,
                applied: lowest.map_or(flushed, |p| p.min(flushed)),
            };
        }
        let decided = self.nth(|a| a.persisted).min(flushed);
        Levels {
            decided,
            written: self.nth(|a| a.received).min(flushed),
            applied: self.nth(|a| a.visible).min(decided),
        }
    }

    /// The highest position that `wanted` replicas have reached.
    fn nth(&self, of: impl Fn(&Acked) -> Position) -> Position {
        let newer =
            |id: u64, name: &str| self.replicas.range(id + 1..).any(|(_, r)| r.name == name);
        let counts = |(id, r): &(&u64, &Replica)| !newer(**id, &r.name);
        let all = self.replicas.iter().filter(counts);
        let mut all: Vec<Position> = all.map(|(_, r)| of(&r.acked)).collect();
        all.sort_unstable();
        match all.len().checked_sub(self.wanted) {
            Some(i) => all[i],
            None => Position::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
