//! One DDL statement at work: the schema as it becomes, the changes that make it so, and the notices on the way.

use super::fill::Fill;
use super::{DdlContext, Notice, privileges};
use crate::catalog::{self, Resolved};
use base::schema::{
    BOOTSTRAP_ROLE, Change, Namespace, Object, Relation, Schema, TEMPORARY, Table, privilege,
};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use std::sync::Arc;
use txn::OnCommit;

pub(super) struct Work<'a> {
    /// The schema with the changes so far.
    pub schema: Schema,
    pub ctx: &'a DdlContext<'a>,
    new_oid: &'a mut dyn FnMut() -> Oid,
    changes: Vec<Change>,
    notices: Vec<Notice>,
    pub fills: Vec<Fill>,
    /// Tables of whose rows checks are put off.
    pub awaited: Vec<Oid>,
    /// What a commit does with the temporary table that is made.
    pub on_commit: Option<(Oid, OnCommit)>,
}

impl<'a> Work<'a> {
    pub fn new(
        schema: Schema,
        ctx: &'a DdlContext<'a>,
        new_oid: &'a mut dyn FnMut() -> Oid,
    ) -> Work<'a> {
        Work {
            schema,
            ctx,
            new_oid,
            changes: vec![],
            notices: vec![],
            fills: vec![],
            awaited: vec![],
            on_commit: None,
        }
    }

    /// Columns to fill before the changes; the changes, one per object, in the order in which the objects got their last form; and the notices.
    pub fn finish(self) -> (Vec<Fill>, Vec<Change>, Vec<Notice>) {
        let mut kept: Vec<Change> = Vec::with_capacity(self.changes.len());
        for mut c in self.changes {
            let id = change_id(&c);
            if let Some(at) = kept.iter().position(|k| change_id(k) == id) {
                let old = kept.remove(at);
                // What has to be copied is what was there before the statement.
                if let (Change::Put(Object::Table(old)), Change::Put(Object::Table(new))) =
                    (old, &mut c)
                    && new.rewrite_of.is_none_or(|from| from == old.storage)
                    && old.rewrite_of.is_some()
                {
                    new.rewrite_of = old.rewrite_of;
                }
            }
            kept.push(c);
        }
        (self.fills, kept, self.notices)
    }

    pub fn oid(&mut self) -> Oid {
        (self.new_oid)()
    }

    pub fn put(&mut self, o: Object) {
        self.change(Change::Put(o));
    }

    pub fn drop(&mut self, id: Oid) {
        self.change(Change::Drop(id));
    }

    fn change(&mut self, c: Change) {
        self.schema = self.schema.apply(std::slice::from_ref(&c));
        self.changes.push(c);
    }

    /// 55006 for a table of whose rows something is still to be asked.
    pub fn not_awaited(&self, command: &str, table: Oid) -> Result<()> {
        if !self.awaited.contains(&table) {
            return Ok(());
        }
        let name = self.schema.table(table).map_or("?", |t| &t.def.name);
        let what = format!("cannot {command} \"{name}\" because it has pending trigger events");
        Err(Error::new(SqlState::OBJECT_IN_USE, what))
    }

    pub fn notice(&mut self, code: SqlState, message: impl Into<String>) {
        self.say("NOTICE", code, message.into(), String::new());
    }

    pub fn say(&mut self, severity: &'static str, code: SqlState, message: String, detail: String) {
        self.notices.push(Notice {
            severity,
            code,
            message,
            detail,
        });
    }

    /// The name that an identifier stands for, with PostgreSQL's NOTICE when it is cut.
    pub fn name(&mut self, ident: &Ident) -> String {
        let name = catalog::fold(ident);
        if ident.value.len() > catalog::MAX_NAME {
            let full = match ident.quote_style {
                Some(_) => ident.value.clone(),
                None => ident.value.to_lowercase(),
            };
            self.notice(
                SqlState::NAME_TOO_LONG,
                format!("identifier \"{full}\" will be truncated to \"{name}\""),
            );
        }
        name
    }

    /// The schema of the session's temporary relations, made when it is first needed.
    fn temporary(&mut self) -> Oid {
        if let Some(n) = self.schema.temporary() {
            return n;
        }
        let id = self.oid();
        // No other session sees it, and every role of this one may use it.
        self.put(Object::Namespace(Namespace {
            id,
            name: format!("{TEMPORARY}{id}"),
            owner: BOOTSTRAP_ROLE,
            acl: vec![(0, privilege::USAGE | privilege::CREATE)],
        }));
        id
    }

    /// [`Work::target`] of a relation that may be temporary: because the statement says so, or names that schema.
    pub fn target_in(&mut self, name: &ObjectName, temporary: bool) -> Result<(Oid, String)> {
        let (ns, rel) = self.split(name)?;
        let own = |n: &str| n == "pg_temp" || n.starts_with(TEMPORARY);
        match ns.as_deref() {
            Some(n) if own(n) => {}
            Some(_) if temporary => {
                return Err(Error::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    "cannot create temporary relation in non-temporary schema",
                ));
            }
            None if temporary => {}
            _ => return self.target(name),
        }
        if let Some(ObjectNamePart::Identifier(i)) = name.0.last() {
            self.name(i);
        }
        Ok((self.temporary(), rel))
    }

    /// Schema and name of a relation to be made: 3F000, 42501.
    pub fn target(&mut self, name: &ObjectName) -> Result<(Oid, String)> {
        if let Some(ObjectNamePart::Identifier(i)) = name.0.last() {
            self.name(i);
        }
        let (ns, rel) = self.split(name)?;
        let ns = match ns {
            Some(n) => self.namespace(&n)?,
            None => catalog::creation_namespace(&self.schema, self.ctx.search_path)?,
        };
        let shown = &self.schema.namespace(ns).expect("just found").name;
        if catalog::is_system(ns) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to create \"{shown}.{rel}\""),
            )
            .detail("System catalog modifications are currently disallowed."));
        }
        privileges::check_namespace(&self.schema, self.ctx.role, ns, privilege::CREATE)?;
        Ok((ns, rel))
    }

    /// A name as `(schema, name)`; a third part must be this database.
    pub fn split(&self, name: &ObjectName) -> Result<(Option<String>, String)> {
        if name.0.len() == 3
            && let ObjectNamePart::Identifier(db) = &name.0[0]
            && catalog::fold(db) != self.ctx.database
        {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cross-database references are not implemented: {name}"),
            ));
        }
        catalog::split_name(name)
    }

    /// The schema of this name; 3F000.
    pub fn namespace(&self, name: &str) -> Result<Oid> {
        self.schema
            .namespace_named(name)
            .map(|n| n.id)
            .ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_SCHEMA_NAME,
                    format!("schema \"{name}\" does not exist"),
                )
            })
    }

    /// What the name means now, if anything.
    pub fn find(&self, name: &ObjectName) -> Result<Option<Resolved>> {
        let (ns, rel) = self.split(name)?;
        if let Some(n) = &ns {
            privileges::check_named_namespace(&self.schema, self.ctx.role, n)?;
        }
        Ok(catalog::find(
            &self.schema,
            self.ctx.search_path,
            ns.as_deref(),
            &rel,
        ))
    }

    /// What the name means; 42P01.
    pub fn resolve(&self, name: &ObjectName) -> Result<Resolved> {
        if let (Some(n), _) = self.split(name)? {
            privileges::check_named_namespace(&self.schema, self.ctx.role, &n)?;
        }
        catalog::resolve(&self.schema, self.ctx.search_path, name)
    }

    /// A user's table of this name, to be changed by its owner: 42P01, 42809, 42501.
    pub fn own_table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        match self.resolve(name)? {
            Resolved::Relation(Relation::Table(t)) => {
                self.must_own("table", &t.def.name, t.def.owner)?;
                Ok(t)
            }
            other => Err(self.wrong_kind(&other, "table")),
        }
    }

    /// 42501 for catalogs, 42809 for everything else that is not a `wanted`.
    pub fn wrong_kind(&self, found: &Resolved, wanted: &str) -> Error {
        if let Resolved::Virtual(v) = found {
            return Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{}\" is a system catalog", v.name()),
            );
        }
        let article = if wanted == "index" { "an" } else { "a" };
        Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not {article} {wanted}", found.name()),
        )
    }

    /// 42501 unless the role has the rights of the owner.
    pub fn must_own(&self, kind: &str, name: &str, owner: Oid) -> Result<()> {
        if self.has_rights_of(owner) {
            return Ok(());
        }
        Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("must be owner of {kind} {name}"),
        ))
    }

    /// Whether the current role has the rights of this one.
    pub fn has_rights_of(&self, role: Oid) -> bool {
        self.schema.has_rights_of(self.ctx.role, role)
    }

    pub fn superuser(&self) -> bool {
        privileges::is_superuser(&self.schema, self.ctx.role)
    }

    /// Whether any relation, index included, has this name.
    pub fn taken(&self, namespace: Oid, name: &str) -> bool {
        self.schema.lookup(namespace, name).is_some()
    }

    /// 42P07 when the name is taken.
    pub fn must_be_free(&self, namespace: Oid, name: &str) -> Result<()> {
        if !self.taken(namespace, name) {
            return Ok(());
        }
        Err(Error::new(
            SqlState::DUPLICATE_TABLE,
            format!("relation \"{name}\" already exists"),
        ))
    }
}

pub(super) fn change_id(c: &Change) -> Oid {
    match c {
        Change::Put(o) => o.id(),
        Change::Drop(id) => *id,
    }
}
