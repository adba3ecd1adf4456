//! What a transaction has changed of the schema, and how it takes effect or comes to nothing.
//!
//! Left out on purpose: making the changes, which is `schema_change`'s.

use base::schema::Change;
use base::{Oid, Position};
use std::collections::HashMap;
use std::sync::Arc;
use store::{RETIRED, Storage};

use crate::handle::{Catalog, TableHandle};
use crate::manager::{TxnManager, publish_table};

/// What a transaction has changed of the schema.
#[derive(Default)]
pub(crate) struct OwnSchema {
    pub(crate) changes: Vec<Change>,
    /// Storages that only this transaction has.
    pub(crate) private: HashMap<u32, Arc<Storage>>,
    /// The table that each of them was made for.
    pub(crate) made_for: HashMap<u32, Oid>,
    /// Storages marked as changing, the shape that they had, and their tables.
    pub(crate) quiesced: Vec<(Arc<Storage>, u64, Oid)>,
    /// Indexes that were made here and are attached to their storages, and the tables.
    pub(crate) attached: Vec<(Arc<Storage>, u32, Oid)>,
    pub(crate) steps: Vec<Step>,
}

/// How all was before a step, for savepoints.
pub(crate) struct Step {
    /// Of the writes.
    pub(crate) mark: usize,
    pub(crate) changes: usize,
    pub(crate) attached: usize,
    pub(crate) catalog: Arc<Catalog>,
    /// The storages that it began.
    pub(crate) private: Vec<u32>,
}

impl OwnSchema {
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Indexes made from the `n`th on come to nothing.
    pub(crate) fn detach_from(&mut self, n: usize) {
        for (storage, id, _) in self.attached.drain(n..) {
            storage.detach(|i| i == id);
        }
    }

    /// Storages that were begun here come to nothing: nobody else has seen a row of them.
    pub(crate) fn forget_private(&mut self, gone: impl IntoIterator<Item = u32>) {
        for id in gone {
            if let Some(storage) = self.private.remove(&id) {
                storage.pay_back();
            }
        }
    }

    /// Storages that were begun here and are of no table of this catalog.
    pub(crate) fn unused(&self, catalog: &Catalog) -> Vec<u32> {
        let unused = |id: &u32| {
            let table = self.made_for.get(id).and_then(|t| catalog.table(*t));
            table.is_none_or(|t| t.storage.id != *id)
        };
        self.private.keys().copied().filter(unused).collect()
    }

    /// What was begun here and is of no table in the end: of one that was dropped, truncated or rewritten again.
    pub(crate) fn forget_unused(&mut self, catalog: &Catalog) {
        let gone = self.unused(catalog);
        self.forget_private(gone);
        for (storage, id, table) in self.attached.drain(..) {
            let table = catalog.table(table);
            let mut now = table.iter().flat_map(|t| t.indexes.iter().flatten());
            if !now.any(|i| i.spec.id == id) {
                storage.detach(|i| i == id);
            }
        }
    }

    /// The change takes effect at its position. Each storage goes from `CHANGING` to its next shape in one step, so that no
    /// commit through an old handle slips in.
    pub(crate) fn install(&self, shared: &TxnManager, catalog: &Arc<Catalog>, at: Position) {
        let before = shared.catalog();
        for (storage, shape, table) in &self.quiesced {
            let is_now = catalog.table(*table).filter(|t| t.storage.id == storage.id);
            let was = before.table(*table);
            match is_now {
                None => storage.set_shape(RETIRED),
                Some(t) if was.is_some_and(|b| Arc::ptr_eq(b, t)) => storage.set_shape(*shape),
                Some(_) => {}
            }
        }
        each_new_handle(&before, catalog, &mut |handle| {
            publish_table(&shared.store, handle);
        });
        shared.install_catalog(at, catalog.clone());
    }
}

/// Calls `f` with each table's handle that `before` does not have.
pub(crate) fn each_new_handle(
    before: &Catalog,
    after: &Catalog,
    f: &mut dyn FnMut(&Arc<TableHandle>),
) {
    before
        .tables
        .each_change(&after.tables, &mut |_, old, new| {
            if let Some(new) = new
                && old.is_none_or(|o| !Arc::ptr_eq(o, new))
            {
                f(new);
            }
        });
}
