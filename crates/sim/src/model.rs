//! Every commit that a primary ever made, by term and position, and what a history is: terms, and where each began.
//!
//! A position belongs to the newest term that began below it. So the state at a position of a history is all its commits up to
//! there, each of the term that its position belongs to; two histories share what comes before their fork.

use base::record::{self, RecordKind};
use base::{Position, RelId};
use replica::ship::term_at;
use std::collections::{BTreeMap, BTreeSet};

use crate::values::{Change, Values};

/// Terms of a history: (term, last position before it), ascending.
pub type Terms = Vec<(u64, Position)>;

/// Names a row: where the rows of its table are, and its key.
pub type Name = (RelId, Vec<u8>);

/// A row; none: deleted.
pub type Write = (Name, Option<Vec<u8>>);

pub type Rows = BTreeMap<Name, Vec<u8>>;

/// What a commit did, in two ways: the rows of its record, and what its client did to the stocks.
#[derive(Default)]
struct Commit {
    writes: Vec<Write>,
    stock: Vec<Change>,
}

/// What was promised of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// `synchronous_commit = off`: until the next crash.
    Off,
    /// `local`: while this node's disk is the history's.
    Local,
    /// `remote_write`: and while the memory of the replicas that have it stands.
    Remote,
    /// `on`, `remote_apply`: by the cluster's policy.
    Policy,
}

#[derive(Default)]
pub struct Model {
    commits: BTreeMap<(Position, u64), Commit>,
    acknowledged: BTreeMap<(Position, u64), Promise>,
    /// By term, what was acknowledged by the policy: when, in microseconds, and what.
    times: BTreeMap<u64, Vec<(i64, Position)>>,
    /// Acknowledged and lost, as the promise allowed.
    pub forgiven: BTreeSet<(Position, u64)>,
}

impl Model {
    /// A primary has installed a commit, with these parts of its record.
    pub fn committed(
        &mut self,
        term: u64,
        at: Position,
        (heads, data): (&[u8], &[u8]),
        stock: Vec<Change>,
    ) {
        let (mut h, mut d) = (heads, data);
        let commit = record::Commit::take(&mut h, &mut d).expect("a commit's record is readable");
        assert_eq!(commit.position, at);
        let writes = commit.iter().map(|r| r.expect("a record is readable"));
        let writes = writes.filter_map(|r| match r.kind {
            RecordKind::Put => Some(((r.storage, r.key.to_vec()), Some(r.row.to_vec()))),
            RecordKind::Delete => Some(((r.storage, r.key.to_vec()), None)),
            RecordKind::Schema | RecordKind::Sequence | RecordKind::Notify => None,
        });
        let writes = writes.collect();
        self.commits.insert((at, term), Commit { writes, stock });
    }

    /// A client was told.
    pub fn acknowledged(&mut self, term: u64, at: Position, promise: Promise, now: i64) {
        if promise == Promise::Policy {
            self.times.entry(term).or_default().push((now, at));
        }
        let known = self.acknowledged.entry((at, term)).or_insert(promise);
        *known = (*known).max(promise);
    }

    /// A machine came back with this history up to `last`; what its term had above is gone. The strongest promise among the
    /// acknowledged ones that are lost with it.
    pub fn crashed(&mut self, term: u64, last: Position) -> Option<Promise> {
        let gone = |k: &(Position, u64)| k.1 == term && k.0 > last;
        if let Some(times) = self.times.get_mut(&term) {
            times.retain(|(_, at)| *at <= last);
        }
        self.commits.retain(|k, _| !gone(k));
        let lost: Vec<_> = self.acknowledged.iter().filter(|(k, _)| gone(k)).collect();
        let strongest = lost.iter().map(|(_, p)| **p).max();
        let keys: Vec<_> = lost.into_iter().map(|(k, _)| *k).collect();
        for k in keys {
            self.acknowledged.remove(&k);
        }
        strongest
    }

    /// Acknowledged commits that this history does not hold.
    pub fn missing(&self, terms: &Terms, last: Position) -> Vec<((Position, u64), Promise)> {
        let lost = |(k, _): &(&(Position, u64), &Promise)| k.0 > last || term_at(terms, k.0) != k.1;
        let all = self.acknowledged.iter().filter(lost);
        all.filter(|(k, _)| !self.forgiven.contains(k))
            .map(|(k, p)| (*k, *p))
            .collect()
    }

    /// Every commit that was acknowledged and has not been lost.
    pub fn all_acknowledged(&self) -> BTreeSet<(Position, u64)> {
        let all = self.acknowledged.keys().copied();
        all.filter(|k| !self.forgiven.contains(k)).collect()
    }

    /// Whether an acknowledged commit was lost since, as its promise allowed.
    pub fn is_lost(&self, k: (Position, u64)) -> bool {
        self.forgiven.contains(&k) || !self.acknowledged.contains_key(&k)
    }

    /// The newest commit that the primary of this term had acknowledged by the policy before this time, and has kept.
    pub fn acknowledged_before(&self, term: u64, time: i64) -> Position {
        let all = self.times.get(&term).map_or(&[][..], Vec::as_slice);
        let before = &all[..all.partition_point(|(at, _)| *at < time)];
        before.iter().map(|t| t.1).max().unwrap_or_default()
    }

    /// How many commits were acknowledged.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }

    /// Carries `rows`, the state of the history at `from`, on to `to`.
    pub fn advance(&self, terms: &Terms, rows: &mut Rows, from: Position, to: Position) {
        for (name, row) in self.of(terms, from, to).flat_map(|c| &c.writes) {
            match row {
                Some(row) => rows.insert(name.clone(), row.clone()),
                None => rows.remove(name),
            };
        }
    }

    /// The commits of a history above `from`, up to `to`.
    fn of(&self, terms: &Terms, from: Position, to: Position) -> impl Iterator<Item = &Commit> {
        let none = from >= to;
        let to = if none { from.next() } else { to };
        let all = self.commits.range((from.next(), 0)..=(to, u64::MAX));
        all.filter(move |((at, term), _)| !none && term_at(terms, *at) == *term)
            .map(|(_, commit)| commit)
    }

    /// The rows that commits of a history write above `from`, up to `to`, each with its position.
    pub fn written(
        &self,
        terms: &Terms,
        from: Position,
        to: Position,
    ) -> impl Iterator<Item = (Position, &Name)> {
        let to = to.max(from);
        let all = self
            .commits
            .range((from.next(), 0)..=(to.max(from.next()), u64::MAX));
        all.filter(move |((at, term), _)| *at <= to && term_at(terms, *at) == *term)
            .flat_map(|((at, _), c)| c.writes.iter().map(move |w| (*at, &w.0)))
    }

    /// Carries the values of the stocks on likewise, by what the clients did and not by rows.
    pub fn advance_values(&self, terms: &Terms, values: &mut Values, from: Position, to: Position) {
        for change in self.of(terms, from, to).flat_map(|c| &c.stock) {
            change.apply(values);
        }
    }

    /// The values of the stocks at a position of the history.
    pub fn values(&self, terms: &Terms, at: Position) -> Values {
        let mut values = Values::new();
        self.advance_values(terms, &mut values, Position::ZERO, at);
        values
    }

    /// The state of the history at a position.
    pub fn rows(&self, terms: &Terms, at: Position) -> Rows {
        let mut rows = Rows::new();
        self.advance(terms, &mut rows, Position::ZERO, at);
        rows
    }
}
