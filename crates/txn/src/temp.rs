//! Temporary tables: those of one session.
//!
//! The rows of a temporary table are never in the store. They stand where the uncommitted writes of a transaction stand
//! ([`crate::writes`]), over a storage without rows. So reads merge them in, constraints see them, savepoints undo them, and nothing of them
//! is locked at commit, certified, logged or sent to a replica. Between two transactions the session keeps them:
//!
//! ```text
//! session                            transaction
//!   TempSpace  ── lend ───────────▶  the rows stand among its writes, the tables in its schema
//!              ◀── commit ─────────  as the transaction leaves them, after ON COMMIT
//!              ◀── rollback, drop ─  as they were
//! ```
//! The schema that other sessions see does not have the tables. Each transaction lays them over the schema of its snapshot
//! ([`TempTables::over`]), under the version of that schema. So a plan is known by the state of the temporary tables, too
//! ([`TempSpace::generation`]).
//!
//! A transaction's part of it stands in `temp_change`.
//!
//! Left out on purpose: versions of rows. One session has one transaction at a time, so nothing reads an older state.

use base::Oid;
use base::schema::Object;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handle::{Catalog, TableHandle};
use crate::manager::TxnManager;
use crate::writes::TableWrites;

/// What a commit does with a temporary table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCommit {
    PreserveRows,
    DeleteRows,
    Drop,
}

/// The temporary objects of a session at one moment.
#[derive(Clone, Default)]
pub(crate) struct TempTables {
    /// The namespace first.
    pub(crate) objects: Vec<Object>,
    pub(crate) handles: HashMap<Oid, Arc<TableHandle>>,
    /// Of tables that a commit does not leave as they are.
    pub(crate) on_commit: HashMap<Oid, OnCommit>,
}

impl TempTables {
    /// This schema with the temporary objects.
    pub(crate) fn over(&self, catalog: &Catalog) -> Arc<Catalog> {
        let mut tables = catalog.tables.clone();
        for (id, handle) in &self.handles {
            tables.insert(*id, handle.clone());
        }
        Arc::new(Catalog {
            schema: Arc::new(catalog.schema.with_temporary(&[], &self.objects)),
            tables,
        })
    }

    /// This schema without them.
    pub(crate) fn without(&self, catalog: &Catalog) -> Arc<Catalog> {
        let mut tables = catalog.tables.clone();
        for id in self.handles.keys() {
            tables.remove(id);
        }
        Arc::new(Catalog {
            schema: Arc::new(catalog.schema.with_temporary(&self.objects, &[])),
            tables,
        })
    }

    /// Gives the storages the shapes that these tables write under.
    pub(crate) fn reshape(&self) {
        for h in self.handles.values() {
            h.storage.set_shape(h.shape);
        }
    }

    pub(crate) fn drop_object(&mut self, id: Oid) {
        self.objects.retain(|o| o.id() != id);
        self.handles.remove(&id);
        self.on_commit.remove(&id);
    }

    /// Drops a table with its sequences and comments.
    fn drop_table(&mut self, table: Oid) {
        let part = |o: &Object| match o {
            Object::Sequence(s) => s.owned_by.is_some_and(|(t, _)| t == table),
            Object::Comment { on, .. } => *on == table,
            o => o.id() == table,
        };
        let gone: Vec<Oid> = self
            .objects
            .iter()
            .filter(|o| part(o))
            .map(Object::id)
            .collect();
        gone.into_iter().for_each(|id| self.drop_object(id));
    }

    /// The tables after a commit.
    pub(crate) fn committed(self: Arc<Self>) -> Arc<Self> {
        let drops = |(id, what): (&Oid, &OnCommit)| (*what == OnCommit::Drop).then_some(*id);
        let dropped: Vec<Oid> = self.on_commit.iter().filter_map(drops).collect();
        let now = match dropped.is_empty() {
            true => self,
            false => {
                let mut now = (*self).clone();
                dropped.into_iter().for_each(|id| now.drop_table(id));
                Arc::new(now)
            }
        };
        // The namespace goes with the last of its objects.
        let mut objects = now.objects.iter();
        match objects.all(|o| matches!(o, Object::Namespace(_))) {
            true => Arc::default(),
            false => now,
        }
    }

    pub(crate) fn deletes_rows(&self, table: Oid) -> bool {
        self.on_commit.get(&table) == Some(&OnCommit::DeleteRows)
    }
}

/// A schema, the temporary tables, and the schema with them.
struct Laid {
    catalog: Arc<Catalog>,
    tables: Arc<TempTables>,
    over: Arc<Catalog>,
}

/// The temporary tables of a session between its transactions.
#[derive(Clone, Default)]
pub struct TempSpace(Arc<Kept>);

#[derive(Default)]
struct Kept {
    /// Another one after each change of the tables; 0: there are none. Every statement of a session asks.
    generation: AtomicU64,
    space: Mutex<Space>,
}

#[derive(Default)]
pub(crate) struct Space {
    pub(crate) tables: Arc<TempTables>,
    pub(crate) rows: Vec<TableWrites>,
    /// What the rows take of the memory of `counted`.
    bytes: usize,
    /// The tables laid over a schema, of both as they were then.
    laid: Option<Laid>,
    pub(crate) counted: Option<Arc<TxnManager>>,
}

impl TempSpace {
    /// Whether there are no temporary objects.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.generation() == 0 || self.lock().tables.objects.is_empty()
    }

    /// A number that tells the state of the tables from each other state, of this session or another. 0: there are none.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Space> {
        self.0.space.lock()
    }

    /// The tables have changed.
    pub(crate) fn set_generation(&self, to: u64) {
        self.0.generation.store(to, Ordering::Release);
    }

    /// This schema with the session's temporary objects.
    pub fn over(&self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        match self.generation() {
            0 => catalog,
            _ => self.lock().over(&catalog),
        }
    }

    /// Drops all of it. No transaction of the session runs.
    pub fn clear(&self) {
        self.lock().put(Arc::default(), vec![], None);
        self.set_generation(0);
    }
}

impl Space {
    /// This schema with the tables.
    pub(crate) fn over(&mut self, catalog: &Arc<Catalog>) -> Arc<Catalog> {
        if self.tables.objects.is_empty() {
            return catalog.clone();
        }
        if let Some(l) = &self.laid
            && Arc::ptr_eq(&l.catalog, catalog)
            && Arc::ptr_eq(&l.tables, &self.tables)
        {
            return l.over.clone();
        }
        let over = self.tables.over(catalog);
        self.laid = Some(Laid {
            catalog: catalog.clone(),
            tables: self.tables.clone(),
            over: over.clone(),
        });
        over
    }

    /// `grown`: by how much more memory the rows take; none: they are counted.
    pub(crate) fn put(
        &mut self,
        tables: Arc<TempTables>,
        rows: Vec<TableWrites>,
        grown: Option<isize>,
    ) {
        let now = match grown {
            Some(grown) => self.bytes.saturating_add_signed(grown),
            None => rows.iter().map(TableWrites::bytes).sum(),
        };
        if tables.objects.is_empty() {
            self.laid = None;
        }
        if let Some(shared) = &self.counted {
            let more = now as isize - self.bytes as isize;
            shared.store.memory.add_uncommitted(more);
        }
        (self.tables, self.rows, self.bytes) = (tables, rows, now);
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.put(Arc::default(), vec![], None);
    }
}

/// A transaction's part in its session's temporary tables.
pub(crate) struct Temp {
    pub(crate) space: TempSpace,
    /// When it began, and as it sees them.
    pub(crate) before: Arc<TempTables>,
    pub(crate) now: Arc<TempTables>,
    pub(crate) steps: Vec<TempStep>,
}

/// How all was before a change of the tables, for savepoints.
pub(crate) struct TempStep {
    /// Of the writes.
    pub(crate) mark: usize,
    pub(crate) tables: Arc<TempTables>,
    pub(crate) catalog: Arc<Catalog>,
}

impl Temp {
    pub(crate) fn over(&self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        match self.now.objects.is_empty() {
            true => catalog,
            false => self.now.over(&catalog),
        }
    }
}
