//! Running the statements of [`super::extra`].

use super::extra::Extra;
use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{Object, Relation};
use base::{Error, Result, SqlState};
use sqlparser::ast::{Ident, ObjectName};

impl Work<'_> {
    /// Runs the statement; its command tag.
    pub(super) fn extra(&mut self, e: &Extra) -> Result<String> {
        match e {
            Extra::Statement(s, tag) => {
                let own = self.statement(s)?;
                Ok(tag.map_or(own, Into::into))
            }
            Extra::CreateSequence {
                name,
                if_not_exists,
                options,
                owned_by,
            } => self.create_sequence(name, *if_not_exists, options, owned_by.as_ref()),
            Extra::CreateUser { name, options } => {
                let name = self.name(name);
                self.create_role(&name, false, options)?;
                Ok("CREATE ROLE".into())
            }
            Extra::AlterSequence {
                name,
                if_exists,
                options,
                owned_by,
            } => self.alter_sequence(name, *if_exists, options, owned_by.as_ref()),
            Extra::SetSchema {
                tag,
                name,
                if_exists,
                schema,
            } => {
                self.set_schema(name, *if_exists, schema)?;
                Ok((*tag).into())
            }
            Extra::DropIdentity {
                table,
                column,
                if_exists,
            } => self.drop_identity(table, column, *if_exists),
            Extra::AlterIdentity {
                table,
                column,
                if_exists,
                always,
                options,
            } => {
                if *if_exists && self.find(table)?.is_none() {
                    self.skip_missing(table)?;
                } else {
                    self.alter_identity(table, column, *always, options)?;
                }
                Ok("ALTER TABLE".into())
            }
            Extra::Upkeep {
                tag,
                relations,
                alone,
            } => {
                if *alone && self.ctx.in_transaction_block {
                    return Err(Error::new(
                        SqlState::ACTIVE_SQL_TRANSACTION,
                        format!("{tag} cannot run inside a transaction block"),
                    ));
                }
                for r in relations {
                    self.resolve(r)?;
                }
                Ok((*tag).into())
            }
            Extra::Lock(_) => Err(Error::internal("a lock is no change of the schema")),
            Extra::Refused(what) => Err(Error::unsupported(what)),
        }
    }

    fn set_schema(&mut self, name: &ObjectName, if_exists: bool, schema: &Ident) -> Result<()> {
        let found = match self.find(name)? {
            None if if_exists => return self.skip_missing(name),
            _ => self.resolve(name)?,
        };
        let ns = self.namespace(&catalog::fold(schema))?;
        if catalog::is_system(ns) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "cannot move objects into or out of system schemas",
            ));
        }
        if found.namespace() == ns {
            return Ok(());
        }
        self.must_be_free(ns, found.name())?;
        if !self.views_of(found.oid()).is_empty() {
            return Err(Error::unsupported("moving a relation that a view reads"));
        }
        match &found {
            Resolved::Relation(Relation::Table(t)) => {
                self.must_own("table", &t.def.name, t.def.owner)?;
                if !self.owned_sequences(|x, _| x == t.def.id).is_empty() {
                    return Err(Error::unsupported("moving a table that owns sequences"));
                }
                for i in &t.def.indexes {
                    self.must_be_free(ns, &i.name)?;
                }
                let mut def = t.def.clone();
                def.namespace = ns;
                self.put(Object::Table(def));
            }
            Resolved::Relation(Relation::View(v)) => {
                self.must_own("view", &v.name, v.owner)?;
                let mut def = (**v).clone();
                def.namespace = ns;
                self.put(Object::View(def));
            }
            Resolved::Relation(Relation::Sequence(_)) => {
                return Err(Error::unsupported("ALTER SEQUENCE SET SCHEMA"));
            }
            other => return Err(self.wrong_kind(other, "table")),
        }
        Ok(())
    }
}
