//! Running the statements of [`super::extra`].

use super::extra::{Extra, Upkept};
use super::privileges;
use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{BOOTSTRAP_ROLE, Object, Relation, privilege};
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
            Extra::Upkeep {
                tag,
                what,
                relations,
                alone,
            } => {
                self.look_after(tag, *what, relations, *alone)?;
                Ok((*tag).into())
            }
            Extra::CommentOnConstraint { name, table, text } => {
                self.comment_on_constraint(name, table, text.as_deref())
            }
            Extra::OfType(s) => self.type_statement(s),
            Extra::StoredSetting(s) => self.store_setting(s),
            Extra::RoleGrant(g) => self.grant_roles(g),
            Extra::DefaultPrivileges(d) => self.alter_default_privileges(d),
            Extra::Lock(_) => Err(Error::internal("a lock is no change of the schema")),
            Extra::Refused(what) => Err(Error::unsupported(what)),
        }
    }

    /// VACUUM and its like: 25001 inside of a block where the statement has to be alone.
    fn look_after(
        &mut self,
        tag: &str,
        what: Upkept,
        relations: &[ObjectName],
        alone: bool,
    ) -> Result<()> {
        if alone && self.ctx.in_transaction_block {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("{tag} cannot run inside a transaction block"),
            ));
        }
        for r in relations {
            self.upkeep(tag, what, r)?;
        }
        Ok(())
    }

    /// Whether the role may have this looked after: 42501, or a warning where VACUUM and ANALYZE skip it.
    fn upkeep(&mut self, tag: &str, what: Upkept, name: &ObjectName) -> Result<()> {
        match what {
            Upkept::Schema => {
                let (_, n) = self.split(name)?;
                let id = self.namespace(&n)?;
                let owner = self.schema.namespace(id).expect("found").owner;
                return self.must_own("schema", &n, owner);
            }
            Upkept::Database => {
                let (_, n) = self.split(name)?;
                if n != self.ctx.database {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "can only reindex the currently open database",
                    ));
                }
                return self.must_own("database", &n, BOOTSTRAP_ROLE);
            }
            Upkept::Skipped | Upkept::Table | Upkept::Index => {}
        }
        let found = self.resolve(name)?;
        let (kind, owner) = match &found {
            Resolved::Relation(r) => super::alter::kind_and_owner(r),
            Resolved::Index(t, _) => ("index", t.def.owner),
            Resolved::Virtual(_) => ("table", BOOTSTRAP_ROLE),
        };
        if what == Upkept::Skipped {
            let word = tag.to_lowercase();
            let name = found.name().to_owned();
            let why = if !self.has_rights_of(owner) {
                match found {
                    Resolved::Virtual(_) => format!("only superuser can {word} it"),
                    _ => format!("only table or database owner can {word} it"),
                }
            } else if !matches!(
                found,
                Resolved::Relation(Relation::Table(_)) | Resolved::Virtual(_)
            ) {
                format!("cannot {word} non-tables or special system tables")
            } else {
                return Ok(());
            };
            let message = format!("skipping \"{name}\" --- {why}");
            self.say("WARNING", SqlState::WARNING, message, String::new());
            return Ok(());
        }
        let wanted = match what {
            Upkept::Index => "index",
            _ => "table",
        };
        if kind != wanted {
            return Err(self.wrong_kind(&found, wanted));
        }
        self.must_own(kind, found.name(), owner)
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
