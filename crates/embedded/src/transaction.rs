//! One run of a transaction: its operations, each a statement of its own that waits for locks and moves the snapshot as it must.
//!
//! The transaction stands in a `RefCell`, so that several [`Table`]s can be used side by side. A closure that is handed a row
//! while it is read in place (`get_with`, `each`) must not use the transaction: that is an error (XX000), not a panic.

use base::{Error, Oid, Result, SqlState};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use txn::{Catalog, Isolation, Stop, TableHandle, Txn, TxnOptions};

use super::create::{find, no_table};
use super::database::{Database, TransactionOptions};
use super::table::Table;

/// A running transaction, handed to the closure of [`Database::transaction`].
pub struct Transaction<'db> {
    #[cfg_attr(not(feature = "sql"), expect(dead_code))]
    pub(super) db: &'db Database,
    inner: RefCell<Running>,
    /// The schema of the first snapshot: tables are handed out by reference, so that threads do not count in one place.
    catalog: Arc<Catalog>,
    /// A buffer for keys, taken while one is used.
    key: Cell<Vec<u8>>,
}

pub(super) struct Running {
    /// Lent to the SQL session while a statement runs.
    pub(super) txn: Option<Box<Txn>>,
    /// The error that ended the transaction.
    failed: Option<Error>,
    /// What runs its SQL statements, once there was one.
    #[cfg(feature = "sql")]
    pub(super) sql: Option<super::sessions::Session>,
}

impl Running {
    fn txn(&mut self) -> &mut Txn {
        self.txn
            .as_mut()
            .expect("it is lent within a statement only")
    }
}

impl<'db> Transaction<'db> {
    pub(super) fn begin(
        db: &'db Database,
        options: &TransactionOptions,
        locking: bool,
    ) -> Result<Transaction<'db>> {
        let mut txn = Box::new(db.node().begin(
            TxnOptions {
                isolation: options.isolation,
                read_only: options.read_only,
                durability: options.durability,
                locking,
                ..TxnOptions::default()
            },
            options.read_only,
        ));
        txn.begin_statement()?;
        Ok(Transaction {
            catalog: txn.catalog(),
            inner: RefCell::new(Running {
                txn: Some(txn),
                failed: None,
                #[cfg(feature = "sql")]
                sql: None,
            }),
            db,
            key: Cell::default(),
        })
    }

    pub(super) fn into_parts(self) -> (Box<Txn>, Option<Error>) {
        let r = self.inner.into_inner();
        #[cfg(feature = "sql")]
        if let Some(session) = r.sql {
            self.db.give_session(session);
        }
        (r.txn.expect("nobody has it now"), r.failed)
    }

    /// The table of this name, as the transaction's snapshot knows it. 42P01 when there is none.
    pub fn table(&self, name: &str) -> Result<Table<'_>> {
        let id = find(&self.catalog.schema, name).ok_or_else(|| no_table(name))?;
        self.table_by_id(id)
    }

    /// The table of this number ([`Table::id`]): saves the look-up by name where a transaction is short.
    pub fn table_by_id(&self, id: Oid) -> Result<Table<'_>> {
        match self.catalog.table(id) {
            Some(handle) => Ok(Table::new(self, handle)),
            None => Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("table {id} does not exist"),
            )),
        }
    }

    pub(super) fn prefetch(&self, table: &TableHandle, keys: &[&[u8]]) -> Result<()> {
        let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
        if let Some(txn) = &mut r.txn {
            txn.prefetch(table, keys);
        }
        Ok(())
    }

    /// The buffer for keys, empty. Give it back with `give_key`.
    pub(super) fn take_key(&self) -> Vec<u8> {
        let mut key = self.key.take();
        key.clear();
        key
    }

    pub(super) fn give_key(&self, key: Vec<u8>) {
        self.key.set(key);
    }

    /// How often the snapshot moved forward.
    pub fn moves(&self) -> u32 {
        self.inner.borrow_mut().txn().moves()
    }

    /// An operation that only reads the snapshot: it neither waits nor moves it.
    pub(super) fn reading<R>(&self, f: impl FnOnce(&mut Txn) -> Result<R>) -> Result<R> {
        let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
        if let Some(e) = &r.failed {
            return Err(e.clone());
        }
        // READ COMMITTED: each operation has a snapshot of its own.
        let fresh = match r.txn().isolation() {
            Isolation::ReadCommitted => r.txn().begin_statement(),
            _ => Ok(()),
        };
        fresh
            .and_then(|()| self.same_schema(&r))
            .and_then(|()| f(r.txn()))
            .inspect_err(|e| r.failed = Some(e.clone()))
    }

    /// Tables are used as the first snapshot knew them: 40001 when the schema is another now, 0A000 when the transaction itself
    /// has changed it.
    fn same_schema(&self, r: &Running) -> Result<()> {
        let txn = r.txn.as_ref().expect("it is lent within a statement only");
        if txn.sees(&self.catalog) {
            return Ok(());
        }
        #[cfg(feature = "sql")]
        if r.sql.as_ref().is_some_and(|s| s.changed_schema()) {
            return Err(Error::unsupported(
                "access by key in a transaction that has changed the schema",
            ));
        }
        Err(Error::new(
            SqlState::SERIALIZATION_FAILURE,
            "the schema changed during the transaction",
        ))
    }

    /// An operation that writes: a statement. `f` may run several times, each time after its effects were undone.
    pub(super) fn statement<R>(
        &self,
        table: &TableHandle,
        mut f: impl FnMut(&mut Txn, &TableHandle) -> txn::Result<R>,
    ) -> Result<R> {
        self.run(|r| {
            self.same_schema(r)?;
            f(r.txn(), table)
        })
    }

    /// The checks that were put off, before the commit.
    pub(super) fn check_deferred(&self) -> Result<()> {
        loop {
            let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
            if r.failed.is_some() || !r.txn().has_deferred() {
                return Ok(());
            }
            match r.txn().check_deferred(true) {
                Err(Stop::Blocked) => wait_for_lock(r.txn()),
                checked => {
                    let checked = checked.map_err(Stop::only_error);
                    return checked.inspect_err(|e| r.failed = Some(e.clone()));
                }
            }
        }
    }

    /// Runs a statement until it neither waits nor restarts.
    pub(super) fn run<R>(&self, mut f: impl FnMut(&mut Running) -> txn::Result<R>) -> Result<R> {
        loop {
            let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
            if let Some(e) = &r.failed {
                return Err(e.clone());
            }
            let begun = r.txn().begin_statement();
            let outcome = begun.map_err(Stop::from).and_then(|()| {
                let v = f(&mut r)?;
                r.txn().end_statement()?;
                Ok(v)
            });
            let e = match outcome {
                Ok(v) => return Ok(v),
                Err(e) => e,
            };
            let txn = r.txn();
            txn.rollback_statement();
            match e {
                Stop::Restart => {}
                Stop::Blocked => wait_for_lock(txn),
                Stop::Error(e) => {
                    r.failed = Some(e.clone());
                    return Err(e);
                }
            }
        }
    }
}

fn wait_for_lock(txn: &mut Txn) {
    let wait = txn
        .take_wait()
        .expect("a blocked statement leaves what it waits for");
    futures::executor::block_on(wait);
}

fn nested() -> Error {
    Error::internal("the transaction is used inside a closure that reads a row in place")
}
