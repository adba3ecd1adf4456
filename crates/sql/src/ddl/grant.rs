//! GRANT and REVOKE on tables, views, their columns, sequences and schemas; COMMENT ON.
//!
//! The first change of an ACL writes down what the owner holds, as PostgreSQL does, so that `\dp` shows it. That of a column holds what was
//! granted on the column and nothing else. A REVOKE on a relation takes the same rights from its columns.
//!
//! Left out on purpose: grant options, privileges on databases and functions, and on system columns: what is not enforced is refused
//! (0A000).

use super::constraints::place;
use super::privileges;
use super::work::Work;
use crate::catalog::{self, DATABASE_OID, Resolved};
use base::schema::{Acl, BOOTSTRAP_ROLE, Column, Object, PUBLIC, Relation, Role, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{
    Action, CommentObject, Grant, GrantObjects, Grantee, GranteeName, GranteesType, Ident,
    ObjectName, ObjectNamePart, Privileges, Revoke,
};

/// What a privilege is granted on.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Table,
    Sequence,
    Schema,
    Type,
}

impl Kind {
    fn all(self) -> u32 {
        match self {
            Kind::Table => privilege::ALL,
            Kind::Sequence => privilege::USAGE | privilege::SELECT | privilege::UPDATE,
            Kind::Schema => privilege::USAGE | privilege::CREATE,
            Kind::Type => privilege::USAGE,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Sequence => "sequence",
            Kind::Schema => "schema",
            Kind::Type => "type",
        }
    }
}

/// 42501; `of`: the relation of a column.
fn denied(kind: &str, name: &str, of: Option<&str>) -> Error {
    let message = match of {
        None => format!("permission denied for {kind} {name}"),
        Some(of) => format!("permission denied for {kind} \"{name}\" of relation \"{of}\""),
    };
    Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "tableoid", "cmin", "cmax"];

/// What a message of GRANT names.
struct Granted<'a> {
    kind: &'static str,
    name: &'a str,
    /// The relation of a column.
    of: Option<&'a str>,
    owner: Oid,
}

impl<'a> Granted<'a> {
    fn new(kind: &'static str, name: &'a str, owner: Oid) -> Granted<'a> {
        Granted {
            kind,
            name,
            of: None,
            owner,
        }
    }
}

impl Work<'_> {
    pub(super) fn grant(&mut self, g: &Grant) -> Result<String> {
        if g.with_grant_option {
            return Err(Error::unsupported("WITH GRANT OPTION"));
        }
        self.change_acls(&g.privileges, g.objects.as_ref(), &g.grantees, true)?;
        Ok("GRANT".into())
    }

    pub(super) fn revoke(&mut self, r: &Revoke) -> Result<String> {
        if r.grant_option_for {
            return Err(Error::unsupported("REVOKE GRANT OPTION"));
        }
        self.change_acls(&r.privileges, r.objects.as_ref(), &r.grantees, false)?;
        Ok("REVOKE".into())
    }

    fn change_acls(
        &mut self,
        privileges: &Privileges,
        objects: Option<&GrantObjects>,
        grantees: &[Grantee],
        give: bool,
    ) -> Result<()> {
        let roles: Vec<Oid> = grantees
            .iter()
            .map(|g| self.grantee(g))
            .collect::<Result<_>>()?;
        let mut targets: Vec<(Oid, Kind)> = vec![];
        match objects {
            None => return Err(Error::unsupported("membership of roles")),
            Some(GrantObjects::Tables(names) | GrantObjects::Views(names)) => {
                for n in names {
                    let found = self.resolve(n)?;
                    let kind = match &found {
                        Resolved::Relation(Relation::Sequence(_)) => Kind::Sequence,
                        Resolved::Relation(_) => Kind::Table,
                        other => return Err(self.wrong_kind(other, "table")),
                    };
                    targets.push((found.oid(), kind));
                }
            }
            Some(GrantObjects::Sequences(names)) => {
                for n in names {
                    let found = self.resolve(n)?;
                    if !matches!(found, Resolved::Relation(Relation::Sequence(_))) {
                        return Err(self.wrong_kind(&found, "sequence"));
                    }
                    targets.push((found.oid(), Kind::Sequence));
                }
            }
            Some(GrantObjects::Schemas(names)) => {
                for n in names {
                    let (_, n) = self.split(n)?;
                    targets.push((self.namespace(&n)?, Kind::Schema));
                }
            }
            Some(GrantObjects::AllTablesInSchema { schemas }) => {
                for s in schemas {
                    let ns = self.split(s)?.1;
                    let ns = self.namespace(&ns)?;
                    targets.extend(self.relations_in(ns, false).map(|r| (r, Kind::Table)));
                }
            }
            Some(GrantObjects::AllSequencesInSchema { schemas }) => {
                for s in schemas {
                    let ns = self.split(s)?.1;
                    let ns = self.namespace(&ns)?;
                    targets.extend(self.relations_in(ns, true).map(|r| (r, Kind::Sequence)));
                }
            }
            Some(_) => return Err(Error::unsupported("GRANT or REVOKE on this kind of object")),
        }
        let columns = of_columns(privileges)?;
        for (id, kind) in targets {
            let bits = bits(privileges, kind)?;
            if bits != 0 || columns.is_empty() {
                self.change_acl(id, kind, bits, &roles, give)?;
            }
            for &(bits, column) in &columns {
                if kind != Kind::Table {
                    return Err(Error::new(
                        SqlState::INVALID_GRANT_OPERATION,
                        "column privileges are only valid for relations",
                    ));
                }
                self.change_column_acl((id, column), bits, &roles, give)?;
            }
        }
        Ok(())
    }

    /// GRANT and REVOKE on a column.
    fn change_column_acl(
        &mut self,
        (id, column): (Oid, &Ident),
        bits: u32,
        roles: &[Oid],
        give: bool,
    ) -> Result<()> {
        let name = catalog::fold(column);
        let relation = self.schema.relation(id).cloned().expect("found");
        let columns = relation.columns();
        let is = |c: &Column| !c.dropped && c.name == name;
        let Some(at) = columns.iter().position(is) else {
            let shown = relation.name();
            return Err(match SYSTEM_COLUMNS.contains(&name.as_str()) {
                true => Error::unsupported("a privilege on a system column"),
                false => Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" of relation \"{shown}\" does not exist"),
                ),
            });
        };
        let held = privileges::held_on_column(&self.schema, self.ctx.role, &relation, at);
        let held = held & privilege::OF_COLUMNS;
        let change = |acl: &mut Acl| {
            for &role in roles {
                match acl.iter_mut().find(|(to, _)| *to == role) {
                    Some((_, held)) if give => *held |= bits,
                    Some((_, held)) => *held &= !bits,
                    None if give => acl.push((role, bits)),
                    None => {}
                }
            }
            acl.retain(|(_, bits)| *bits != 0);
        };
        let named = |owner| Granted {
            kind: "column",
            name: &name,
            of: Some(relation.name()),
            owner,
        };
        match &relation {
            Relation::Table(t) => {
                if self.may_grant(&named(t.def.owner), held, give)? {
                    let mut def = t.def.clone();
                    change(&mut def.columns[at].acl);
                    self.put(Object::Table(def));
                }
            }
            Relation::View(v) => {
                if self.may_grant(&named(v.owner), held, give)? {
                    let mut def = (**v).clone();
                    change(&mut def.columns[at].acl);
                    self.put(Object::View(def));
                }
            }
            Relation::Sequence(_) => {}
        }
        Ok(())
    }

    /// GRANT and REVOKE USAGE ON TYPE.
    pub(super) fn type_usage(
        &mut self,
        give: bool,
        names: &[ObjectName],
        roles: &[Ident],
    ) -> Result<String> {
        let role = |r: &Ident| match catalog::fold(r).as_str() {
            "public" if r.quote_style.is_none() => Ok(0),
            name => Ok(self.role_named(name)?.id),
        };
        let roles: Vec<Oid> = roles.iter().map(role).collect::<Result<_>>()?;
        for name in names {
            let found = self.find_type(name)?.ok_or_else(|| {
                Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("type \"{name}\" does not exist"),
                )
            })?;
            self.change_acl(found.def.id, Kind::Type, privilege::USAGE, &roles, give)?;
        }
        Ok(if give { "GRANT" } else { "REVOKE" }.into())
    }

    fn relations_in(&self, ns: Oid, sequences: bool) -> impl Iterator<Item = Oid> + use<> {
        let mut found: Vec<Oid> = self
            .schema
            .relations()
            .filter(|r| Resolved::Relation((*r).clone()).namespace() == ns)
            .filter(|r| matches!(r, Relation::Sequence(_)) == sequences)
            .map(Relation::id)
            .collect();
        found.sort_unstable();
        found.into_iter()
    }

    fn grantee(&self, g: &Grantee) -> Result<Oid> {
        if matches!(g.grantee_type, GranteesType::Public) {
            return Ok(0);
        }
        match &g.name {
            Some(GranteeName::ObjectName(n)) => {
                let (_, n) = self.split(n)?;
                if n == "public" {
                    return Ok(0);
                }
                Ok(self.role_named(&n)?.id)
            }
            _ => Err(Error::unsupported("this kind of grantee")),
        }
    }

    fn change_acl(
        &mut self,
        id: Oid,
        kind: Kind,
        bits: u32,
        roles: &[Oid],
        give: bool,
    ) -> Result<()> {
        let change = |acl: &mut Acl, owner: Oid, shown: &str| -> Result<()> {
            if acl.is_empty() {
                acl.push((owner, kind.all()));
                if id == PUBLIC || kind == Kind::Type {
                    acl.push((0, privilege::USAGE));
                }
            }
            for &role in roles {
                if role == owner && !give {
                    return Err(Error::unsupported(format!(
                        "revoking a privilege on {shown} from its owner"
                    )));
                }
                match acl.iter_mut().find(|(to, _)| *to == role) {
                    Some((_, held)) if give => *held |= bits,
                    Some((_, held)) => *held &= !bits,
                    None if give => acl.push((role, bits)),
                    None => {}
                }
            }
            acl.retain(|(_, b)| *b != 0);
            Ok(())
        };
        let of_each = |columns: &mut [Column]| {
            let gone = if give {
                0
            } else {
                bits & privilege::OF_COLUMNS
            };
            for acl in columns.iter_mut().map(|c| &mut c.acl) {
                let held = acl.iter_mut().filter(|(to, _)| roles.contains(to));
                held.for_each(|(_, held)| *held &= !gone);
                acl.retain(|(_, bits)| *bits != 0);
            }
        };
        if kind == Kind::Schema {
            let mut n = (**self.schema.namespace(id).expect("found")).clone();
            let held = privileges::held_on_namespace(&self.schema, self.ctx.role, id);
            if !self.may_grant(&Granted::new("schema", &n.name, n.owner), held, give)? {
                return Ok(());
            }
            change(&mut n.acl, n.owner, &n.name)?;
            self.put(Object::Namespace(n));
            return Ok(());
        }
        if kind == Kind::Type {
            let mut def = self.schema.user_type(id).expect("found").def.clone();
            let may = privileges::may_use_type(&self.schema, self.ctx.role, &def);
            if !self.may_grant(
                &Granted::new("type", &def.name, def.owner),
                may.into(),
                give,
            )? {
                return Ok(());
            }
            change(def.acl.get_or_insert_default(), def.owner, &def.name)?;
            self.put(Object::Type(def));
            return Ok(());
        }
        let relation = self.schema.relation(id).cloned().expect("found");
        let held = privileges::held(&self.schema, self.ctx.role, &relation);
        match relation {
            Relation::Table(t) => {
                let mut def = t.def.clone();
                if !self.may_grant(&Granted::new("table", &def.name, def.owner), held, give)? {
                    return self.may_name_columns(id, bits, give);
                }
                change(&mut def.acl, def.owner, &def.name)?;
                of_each(&mut def.columns);
                self.put(Object::Table(def));
            }
            Relation::View(v) => {
                let mut def = (*v).clone();
                if !self.may_grant(&Granted::new("view", &def.name, def.owner), held, give)? {
                    return self.may_name_columns(id, bits, give);
                }
                change(&mut def.acl, def.owner, &def.name)?;
                of_each(&mut def.columns);
                self.put(Object::View(def));
            }
            Relation::Sequence(s) => {
                let mut def = (*s).clone();
                if !self.may_grant(&Granted::new("sequence", &def.name, def.owner), held, give)? {
                    return Ok(());
                }
                change(&mut def.acl, def.owner, &def.name)?;
                self.put(Object::Sequence(def));
            }
        }
        Ok(())
    }

    /// 42501 for a REVOKE of what columns may have, by a role that may revoke nothing and holds nothing on one of the columns.
    fn may_name_columns(&self, relation: Oid, bits: u32, give: bool) -> Result<()> {
        if give || bits & privilege::OF_COLUMNS == 0 {
            return Ok(());
        }
        let relation = self.schema.relation(relation).expect("found");
        let held = |at| privileges::held_on_column(&self.schema, self.ctx.role, relation, at);
        let live = relation.columns().iter().enumerate();
        for (at, c) in live.filter(|(_, c)| !c.dropped) {
            if held(at) & privilege::OF_COLUMNS == 0 {
                return Err(denied("column", &c.name, Some(relation.name())));
            }
        }
        Ok(())
    }

    /// Whether the role may grant and revoke. A role that holds something itself is warned that it changes nothing; one without any
    /// privilege gets 42501.
    fn may_grant(&mut self, on: &Granted<'_>, held: u32, give: bool) -> Result<bool> {
        if self.has_rights_of(on.owner) {
            return Ok(true);
        }
        let Granted { kind, name, .. } = on;
        if held == 0 {
            return Err(denied(kind, name, on.of));
        }
        let (code, what) = match give {
            true => (*b"01007", "no privileges were granted for"),
            false => (*b"01006", "no privileges could be revoked for"),
        };
        let message = match on.of {
            None => format!("{what} \"{name}\""),
            Some(of) => format!("{what} column \"{name}\" of relation \"{of}\""),
        };
        self.say("WARNING", SqlState(code), message, String::new());
        Ok(false)
    }

    /// 42501 unless the role may change that role.
    fn may_comment_on_role(&self, role: &Role) -> Result<()> {
        let me = self.schema.role(self.ctx.role);
        let why = match me {
            Some(me) if me.superuser || me.createrole && !role.superuser => return Ok(()),
            _ if role.superuser => "must be superuser",
            _ => "must have CREATEROLE privilege",
        };
        Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, why))
    }

    pub(super) fn comment(
        &mut self,
        kind: &CommentObject,
        name: &ObjectName,
        text: Option<&str>,
    ) -> Result<String> {
        let (on, column) = self.commented(kind, name)?;
        self.put_comment(on, column, text)
    }

    /// COMMENT ON CONSTRAINT.
    pub(super) fn comment_on_constraint(
        &mut self,
        name: &Ident,
        table: &ObjectName,
        text: Option<&str>,
    ) -> Result<String> {
        let found = self.resolve(table)?;
        let Resolved::Relation(Relation::Table(t)) = &found else {
            return Err(self.wrong_kind(&found, "table"));
        };
        self.must_own("table", &t.def.name, t.def.owner)?;
        let name = catalog::fold(name);
        let keys = t
            .def
            .indexes
            .iter()
            .filter(|i| i.constraint && i.name == name);
        let keys = keys.map(|i| i.constraint_oid);
        let checks = t.def.checks.iter().filter(|c| c.name == name).map(|c| c.id);
        let foreign = t.def.foreign_keys.iter().filter(|f| f.name == name);
        let mut all = keys.chain(checks).chain(foreign.map(|f| f.id));
        let id = all.next().ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!(
                    "constraint \"{name}\" for table \"{}\" does not exist",
                    t.def.name
                ),
            )
        })?;
        self.put_comment(id, 0, text)
    }

    pub(super) fn put_comment(
        &mut self,
        on: Oid,
        column: i32,
        text: Option<&str>,
    ) -> Result<String> {
        self.drop_comments(|o, c| (o, c) == (on, column));
        if let Some(text) = text.filter(|t| !t.is_empty()) {
            let id = self.oid();
            self.put(Object::Comment {
                id,
                on,
                column,
                text: text.to_owned(),
            });
        }
        Ok("COMMENT".into())
    }

    /// 42704, 42501.
    fn commented_extension(&self, name: &ObjectName) -> Result<(Oid, i32)> {
        let (_, n) = self.split(name)?;
        if n == "plpgsql" {
            return Ok((catalog::PLPGSQL, 0));
        }
        let Some(e) = self.schema.extension(&n) else {
            return Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("extension \"{n}\" does not exist"),
            ));
        };
        self.must_own("extension", &n, e.owner)?;
        Ok((e.id, 0))
    }

    /// Object and column number that a comment is on.
    fn commented(&self, kind: &CommentObject, name: &ObjectName) -> Result<(Oid, i32)> {
        match kind {
            CommentObject::Table
            | CommentObject::View
            | CommentObject::Sequence
            | CommentObject::Index => {
                let found = self.resolve(name)?;
                let (is, owner) = match &found {
                    Resolved::Relation(Relation::Table(t)) => ("table", t.def.owner),
                    Resolved::Relation(Relation::View(v)) => ("view", v.owner),
                    Resolved::Relation(Relation::Sequence(s)) => ("sequence", s.owner),
                    Resolved::Index(t, _) => ("index", t.def.owner),
                    Resolved::Virtual(_) => return Err(self.wrong_kind(&found, "table")),
                };
                let wanted = kind.to_string().to_lowercase();
                if is != wanted {
                    return Err(self.wrong_kind(&found, &wanted));
                }
                self.must_own(is, found.name(), owner)?;
                Ok((found.oid(), 0))
            }
            CommentObject::Column => {
                let mut table = name.clone();
                let Some(ObjectNamePart::Identifier(column)) = table.0.pop() else {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "column name must be qualified",
                    ));
                };
                if table.0.is_empty() {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "column name must be qualified",
                    ));
                }
                let column = catalog::fold(&column);
                let found = self.resolve(&table)?;
                let (owner, at) = match &found {
                    Resolved::Relation(Relation::Table(t)) => {
                        (t.def.owner, place(&t.def, &column).map(i32::from))
                    }
                    Resolved::Relation(Relation::View(v)) => {
                        let at = v.columns.iter().position(|c| c.name == column);
                        (v.owner, at.map(|i| i as i32))
                    }
                    other => return Err(self.wrong_kind(other, "table")),
                };
                self.must_own("relation", found.name(), owner)?;
                let at = at.ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!(
                            "column \"{column}\" of relation \"{}\" does not exist",
                            found.name()
                        ),
                    )
                })?;
                Ok((found.oid(), at + 1))
            }
            CommentObject::Schema => {
                let (_, n) = self.split(name)?;
                let id = self.namespace(&n)?;
                let n = self.schema.namespace(id).expect("found");
                self.must_own("schema", &n.name, n.owner)?;
                Ok((id, 0))
            }
            CommentObject::Database => {
                let (_, n) = self.split(name)?;
                if n != self.ctx.database {
                    return Err(Error::new(
                        SqlState::INVALID_CATALOG_NAME,
                        format!("database \"{n}\" does not exist"),
                    ));
                }
                self.must_own("database", &n, BOOTSTRAP_ROLE)?;
                Ok((DATABASE_OID, 0))
            }
            CommentObject::Role | CommentObject::User => {
                let (_, n) = self.split(name)?;
                let role = self.role_named(&n)?;
                self.may_comment_on_role(role)?;
                Ok((role.id, 0))
            }
            CommentObject::Extension => self.commented_extension(name),
            CommentObject::Type => {
                if let Ok(t) = crate::types::typename::from_sql_name(&name.to_string(), &[], false)
                    && privileges::is_superuser(&self.schema, self.ctx.role)
                {
                    return Ok((t.ty.oid(), 0));
                }
                Ok((self.own_type(name)?.id, 0))
            }
            CommentObject::Domain => Ok((self.own_domain(name)?.id, 0)),
            other => Err(Error::unsupported(format!("COMMENT ON {other}"))),
        }
    }
}

fn bits(p: &Privileges, kind: Kind) -> Result<u32> {
    let Privileges::Actions(actions) = p else {
        return Ok(kind.all());
    };
    let mut bits = 0;
    for a in actions {
        let (bit, columns) = action(a)?;
        if columns.is_some() {
            continue;
        }
        if bit & !kind.all() != 0 {
            return Err(Error::new(
                SqlState::INVALID_GRANT_OPERATION,
                format!("invalid privilege type {a} for {}", kind.name()),
            ));
        }
        bits |= bit;
    }
    Ok(bits)
}

/// The right that an action names, and the columns that it is for.
fn action(a: &Action) -> Result<(u32, Option<&Vec<Ident>>)> {
    Ok(match a {
        Action::Select { columns } => (privilege::SELECT, columns.as_ref()),
        Action::Insert { columns } => (privilege::INSERT, columns.as_ref()),
        Action::Update { columns } => (privilege::UPDATE, columns.as_ref()),
        Action::References { columns } => (privilege::REFERENCES, columns.as_ref()),
        Action::Delete => (privilege::DELETE, None),
        Action::Truncate => (privilege::TRUNCATE, None),
        Action::Trigger => (privilege::TRIGGER, None),
        Action::Usage => (privilege::USAGE, None),
        Action::Create { obj_type: None } => (privilege::CREATE, None),
        other => return Err(Error::unsupported(format!("privilege {other}"))),
    })
}

/// The columns that are named, each with its right.
fn of_columns(p: &Privileges) -> Result<Vec<(u32, &Ident)>> {
    let Privileges::Actions(actions) = p else {
        return Ok(vec![]);
    };
    let mut all = vec![];
    for a in actions {
        let (bit, columns) = action(a)?;
        all.extend(columns.into_iter().flatten().map(|c| (bit, c)));
    }
    Ok(all)
}
