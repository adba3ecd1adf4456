//! Every state that a node shows equals the model at that position: rows, an index entry for each, and split values (`splits`). What it shows only grows while it
//! lives. A snapshot that a reader holds stays as it is while replay and the reclaimer go on beneath it.
//!
//! The model's state is carried on from one look to the next, and computed anew when the node's history may have changed.

use base::Position;
use node::Node;
use store::{Snapshot, pin};

use crate::machine::{Running, table};
use crate::model::{Name, Rows, Terms};
use crate::schema::{FURTHER, STOCK, TABLE};
use crate::values::Values;
use crate::world::World;

use super::splits;

/// What a node has shown.
#[derive(Default)]
pub struct Watched {
    terms: Terms,
    shown: Position,
    rows: Rows,
    values: Values,
    held: Option<(Snapshot, Rows)>,
    /// The term that is followed on a connection that stands, and since when: microseconds.
    pub(super) follows: Option<(u64, i64)>,
}

impl Watched {
    /// The node begins anew: it may show less than before.
    pub fn forget(&mut self) {
        *self = Watched::default();
    }

    /// The terms of the history that it shows.
    pub fn terms(&self) -> Terms {
        self.terms.clone()
    }

    /// Its history has these terms from now on.
    pub fn renew(&mut self, terms: Terms) {
        self.terms = terms;
        // What was shown stays shown: only the model's state is computed anew.
        self.rows = Rows::new();
        self.values = Values::new();
        self.held = None;
    }
}

fn rows_at(node: &Node, at: Position) -> Rows {
    let guard = pin();
    let mut rows = Rows::new();
    let catalog = node.catalog();
    let tables = [TABLE, STOCK, FURTHER].map(|id| catalog.tables.get(&id));
    for table in tables.into_iter().flatten() {
        let storage = &table.storage;
        storage.for_each(&guard, |r| {
            if let Some(row) = r.row_at(at, &guard) {
                rows.insert((storage.id, r.key().to_vec()), row.to_vec());
            }
        });
    }
    rows
}

/// Rows without an entry in an index.
fn unindexed(node: &Node, rows: &Rows) -> usize {
    let guard = pin();
    let mut key = Vec::new();
    let mut missing = 0;
    let table = table(node, TABLE);
    for index in table.indexes.iter().flatten() {
        let own = rows.iter().filter(|(name, _)| name.0 == table.storage.id);
        for ((_, primary), row) in own {
            index.spec.key_of(row, primary, &mut key);
            missing += usize::from(index.tree.get(&key, &guard).is_none());
        }
    }
    missing
}

fn differences(real: &Rows, model: &Rows) -> String {
    let keys = real.keys().chain(model.keys());
    let mut keys: Vec<_> = keys.filter(|k| real.get(*k) != model.get(*k)).collect();
    keys.sort();
    keys.dedup();
    let one = |k: &&Name| format!("{k:?}: {:?}, not {:?}", real.get(*k), model.get(*k));
    keys.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl World {
    pub(super) fn check_snapshots(&mut self, i: usize) {
        let machine = &mut self.machines[i];
        let (node, at) = match &machine.up {
            Some(Running::Primary(p)) => (&p.node, p.shown()),
            Some(Running::Follower(f)) => match &f.node {
                Some(node) => (node, f.shown()),
                None => return,
            },
            None => return,
        };
        let Some(at) = at else { return };
        let watched = &mut machine.watched;
        assert!(
            at >= watched.shown,
            "node {i} has shown {}, now it shows {at}",
            watched.shown
        );
        if at == watched.shown && !watched.rows.is_empty() {
            return;
        }
        if watched.rows.is_empty() {
            watched.rows = self.model.rows(&watched.terms, at);
            watched.values = self.model.values(&watched.terms, at);
        } else {
            let from = watched.shown;
            self.model
                .advance(&watched.terms, &mut watched.rows, from, at);
            self.model
                .advance_values(&watched.terms, &mut watched.values, from, at);
        }
        watched.shown = at;
        splits::check(i, node, at, &watched.values);
        let real = rows_at(node, at);
        assert!(
            real == watched.rows,
            "node {i} shows another state at {at} than the history has: {}",
            differences(&real, &watched.rows)
        );
        assert_eq!(
            unindexed(node, &real),
            0,
            "node {i}: rows are not in the index at {at}"
        );
        self.report.snapshots += 1;
        // A reader keeps a snapshot for a while.
        if let Some((snapshot, rows)) = &watched.held {
            let held = snapshot.position();
            assert!(
                rows_at(node, held) == *rows,
                "node {i}: a snapshot held at {held} has changed"
            );
        }
        if self.dice.percent(10) {
            let snapshot = node.manager().store.snapshots.take(|| at);
            watched.held = (snapshot.position() == at).then_some((snapshot, real));
        }
    }

    /// Everything that concerns a node, after an event there.
    pub fn check_node(&mut self, i: usize) {
        self.check_watermarks(i);
        self.check_snapshots(i);
        self.check_ages(i);
        self.check_holds(i);
    }
}
