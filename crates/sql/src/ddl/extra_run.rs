//! Running the statements of [`super::extra`].

use super::extra::Extra;
use super::privileges;
use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{Object, Relation, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{Ident, ObjectName, Statement};

impl Work<'_> {
    /// Runs the statement; its command tag.
    pub(super) fn extra(&mut self, e: &Extra) -> Result<String> {
        match e {
            Extra::Statement(s, tag) => {
                let own = self.statement(s)?;
                Ok(tag.map_or(own, Into::into))
            }
            Extra::DropIndexConcurrently(s) => self.drop_index_concurrently(s),
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
            Extra::ViewOptions {
                name,
                if_exists,
                options,
            } => {
                self.set_view_options(name, *if_exists, options)?;
                Ok("ALTER VIEW".into())
            }
            Extra::ColumnOptions {
                table,
                column,
                if_exists,
                set,
                reset,
            } => {
                if *if_exists && self.find(table)?.is_none() {
                    self.skip_missing(table)?;
                } else {
                    self.column_options(table, column, set, reset)?;
                }
                Ok("ALTER TABLE".into())
            }
            Extra::CommentOnConstraint { name, table, text } => {
                self.comment_on_constraint(name, table, text.as_deref())
            }
            Extra::OfType(s) => self.type_statement(s),
            Extra::StoredSetting(s) => self.store_setting(s),
            Extra::RoleGrant(g) => self.grant_roles(g),
            Extra::DefaultPrivileges(d) => self.alter_default_privileges(d),
            Extra::Lock(_) | Extra::Upkeep(_) => {
                Err(Error::internal("a lock is no change of the schema"))
            }
            Extra::Refused(what) => Err(Error::unsupported(what)),
        }
    }

    fn drop_index_concurrently(&mut self, s: &Statement) -> Result<String> {
        let refused = match s {
            Statement::Drop { cascade: true, .. } => "CASCADE",
            Statement::Drop { names, .. } if names.len() > 1 => "dropping multiple objects",
            _ => return self.statement(s),
        };
        let what = format!("DROP INDEX CONCURRENTLY does not support {refused}");
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what))
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
        let (kind, owner) = match &found {
            Resolved::Relation(r) => super::alter::kind_and_owner(r),
            other => return Err(self.wrong_kind(other, "table")),
        };
        self.must_own(kind, found.name(), owner)?;
        privileges::check_namespace(&self.schema, self.ctx.role, ns, privilege::CREATE)?;
        if found.namespace() == ns {
            return Ok(());
        }
        self.must_be_free(ns, found.name())?;
        if !self.views_of(found.oid()).is_empty() {
            return Err(Error::unsupported("moving a relation that a view reads"));
        }
        match &found {
            Resolved::Relation(Relation::Table(t)) => {
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
