//! One run of a transaction: its operations, each a statement of its own that waits for locks and moves the snapshot as it must.
//!
//! The transaction stands in a `RefCell`, so that several [`Table`]s can be used side by side. A closure that is handed a row
//! while it is read in place (`get_with`, `each`) must not use the transaction: that is an error (XX000), not a panic.

use base::{Error, Oid, Result, SqlState};
use std::cell::RefCell;
use std::sync::Arc;
use txn::{TableHandle, Txn, TxnOptions};

use super::{Database, Table, TransactionOptions};

/// A running transaction, handed to the closure of [`Database::transaction`].
pub struct Transaction {
    inner: RefCell<Running>,
}

struct Running {
    txn: Txn,
    /// The error that ended the transaction.
    failed: Option<Error>,
}

impl Transaction {
    pub(super) fn begin(
        db: &Database,
        options: &TransactionOptions,
        locking: bool,
    ) -> Result<Transaction> {
        let mut txn = db.node().begin(
            TxnOptions {
                isolation: options.isolation,
                read_only: options.read_only,
                durability: options.durability,
                locking,
                ..TxnOptions::default()
            },
            options.read_only,
        );
        txn.begin_statement()?;
        Ok(Transaction {
            inner: RefCell::new(Running { txn, failed: None }),
        })
    }

    pub(super) fn into_parts(self) -> (Txn, Option<Error>) {
        let r = self.inner.into_inner();
        (r.txn, r.failed)
    }

    /// The table of this name, as the transaction's snapshot knows it. 42P01 when there is none.
    pub fn table(&self, name: &str) -> Result<Table<'_>> {
        let catalog = self.with(|t| Ok(t.catalog()))?;
        let id = super::create::find(&catalog.schema, name)
            .ok_or_else(|| super::create::no_table(name))?;
        self.table_by_id(id)
    }

    /// The table of this number ([`Table::id`]): saves the look-up by name where a transaction is short.
    pub fn table_by_id(&self, id: Oid) -> Result<Table<'_>> {
        let handle = self.with(|t| Ok(t.catalog().table(id).cloned()))?;
        let gone = || {
            Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("table {id} does not exist"),
            )
        };
        Ok(Table::new(self, handle.ok_or_else(gone)?))
    }

    /// How often the snapshot moved forward.
    pub fn moves(&self) -> u32 {
        self.inner.borrow().txn.moves()
    }

    fn with<R>(&self, f: impl FnOnce(&mut Txn) -> Result<R>) -> Result<R> {
        let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
        match &r.failed {
            Some(e) => Err(e.clone()),
            None => f(&mut r.txn),
        }
    }

    /// An operation that only reads the snapshot: it neither waits nor moves it.
    pub(super) fn reading<R>(&self, f: impl FnOnce(&mut Txn) -> Result<R>) -> Result<R> {
        let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
        if let Some(e) = &r.failed {
            return Err(e.clone());
        }
        f(&mut r.txn).inspect_err(|e| r.failed = Some(e.clone()))
    }

    /// An operation that writes: a statement. `f` may run several times, each time after its effects were undone.
    pub(super) fn statement<R>(
        &self,
        table: &Arc<TableHandle>,
        mut f: impl FnMut(&mut Txn, &TableHandle) -> Result<R>,
    ) -> Result<R> {
        loop {
            let mut r = self.inner.try_borrow_mut().map_err(|_| nested())?;
            if let Some(e) = &r.failed {
                return Err(e.clone());
            }
            let txn = &mut r.txn;
            let outcome = txn.begin_statement().and_then(|()| {
                let v = f(txn, table)?;
                txn.end_statement()?;
                Ok(v)
            });
            let e = match outcome {
                Ok(v) => return Ok(v),
                Err(e) => e,
            };
            txn.rollback_statement();
            match e.code() {
                SqlState::RESTART => {}
                SqlState::BLOCKED => {
                    let wait = txn
                        .take_wait()
                        .expect("a blocked statement leaves what it waits for");
                    futures::executor::block_on(wait);
                }
                _ => {
                    r.failed = Some(e.clone());
                    return Err(e);
                }
            }
        }
    }
}

fn nested() -> Error {
    Error::internal("the transaction is used inside a closure that reads a row in place")
}
