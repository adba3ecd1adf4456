//! Constraints that are looked at when the transaction ends: SET CONSTRAINTS, and the checks before a commit.
//!
//! A check may have to wait for the lock of a parent's row or of a unique key, as a statement does; it is asked again then.
//!
//! Left out on purpose: CHECK and NOT NULL, which are never put off.

use super::Session;
use super::block::Kind;
use super::client::Client;
use crate::engine::Engine;
use base::schema::Deferral;
use base::{Error, Oid, Result, SqlState};
use txn::Stop;

impl<E: Engine> Session<E> {
    /// SET CONSTRAINTS. 42704, 42809; and what checks say that are due now.
    pub(super) async fn set_constraints<C: Client>(
        &mut self,
        c: &mut C,
        names: &[(Option<String>, String)],
        deferred: bool,
    ) -> Result<()> {
        let alone = self.block.kind == Kind::None;
        if alone {
            let e = "SET CONSTRAINTS can only be used in transaction blocks";
            self.warn(c, SqlState::NO_ACTIVE_SQL_TRANSACTION, e);
        }
        self.ensure_txn(false);
        self.look_at_schema();
        let mut keys = Vec::new();
        for (schema, name) in names {
            keys.extend(self.constraint_named(schema.as_deref(), name, deferred)?);
        }
        let keys = (!names.is_empty()).then_some(&keys[..]);
        let txn = self.block.txn.as_mut().expect("just begun");
        txn.set_deferred(keys, deferred);
        match deferred {
            true => {}
            false => self.check_deferred(false).await?,
        }
        // What it said ends with it.
        match alone {
            true => self.commit().await,
            false => Ok(()),
        }
    }

    /// The numbers of the constraints of this name, in the first schema of the path that has some. One that cannot be deferred is IMMEDIATE already.
    fn constraint_named(
        &mut self,
        schema: Option<&str>,
        name: &str,
        deferred: bool,
    ) -> Result<Vec<Oid>> {
        let path = self.state.search_path();
        let all = self.state.schema();
        let path: Vec<&str> = match schema {
            Some(s) => vec![s],
            None => path.iter().map(String::as_str).collect(),
        };
        for n in path.iter().filter_map(|n| all.namespace_named(n)) {
            let tables = all.tables().filter(|t| t.def.namespace == n.id);
            let (mut keys, mut other) = (Vec::new(), false);
            for t in tables {
                let found = t.def.foreign_keys.iter().filter(|f| f.name == name);
                for f in found {
                    other |= f.deferral == Deferral::Never;
                    keys.push(f.id);
                }
                let indexes = t.def.indexes.iter();
                for i in indexes.filter(|i| i.constraint && i.name == name) {
                    other |= i.deferral.is_never();
                    keys.push(i.constraint_oid);
                }
                other |= t.def.checks.iter().any(|c| c.name == name);
            }
            if other && deferred {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("constraint \"{name}\" is not deferrable"),
                ));
            }
            if other || !keys.is_empty() {
                return Ok(keys);
            }
        }
        Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("constraint \"{name}\" does not exist"),
        ))
    }

    /// The checks that were put off: all of them, or those whose keys are not deferred any more.
    pub(super) async fn check_deferred(&mut self, all: bool) -> Result<()> {
        loop {
            let Some(txn) = self.block.txn.as_mut().filter(|t| t.has_deferred()) else {
                return Ok(());
            };
            match txn.check_deferred(all) {
                Err(Stop::Blocked) => self.wait_for_lock().await?,
                r => return r.map_err(Stop::only_error),
            }
        }
    }
}
