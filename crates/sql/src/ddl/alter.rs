//! ALTER TABLE, one action after another; RENAME and OWNER TO also for views, sequences and indexes, as PostgreSQL allows.
//!
//! No action rewrites a row in place. A column added with a constant default is filled in when a row is read
//! (`Column::missing`); a primary key that comes or goes moves the table to new storage. Where rows themselves change (a default
//! that differs from row to row, another type), they are written anew: see [`super::fill`].
//!
//! Left out on purpose: inheritance, row security, triggers (0A000).

use super::constraints::{Pending, place};
use super::create_table::check_storage_parameters;
use super::depend::Node;
use super::expr_text;
use super::fill::{Fill, With};
use super::privileges;
use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{Object, Relation, TableDef};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, DropBehavior, Ident, ObjectName,
    RenameTableNameKind,
};

/// Changes the texts over a table's own row: of CHECK constraints, generated columns, and what indexes are over.
fn each_text(def: &mut TableDef, f: &dyn Fn(&str) -> String) {
    for c in &mut def.checks {
        c.expr = f(&c.expr);
    }
    for c in def.columns.iter_mut().filter(|c| c.generated) {
        c.default = c.default.as_deref().map(f);
        if c.is_hidden() {
            c.name = c.default.clone().unwrap_or_default();
        }
    }
    for p in def.indexes.iter_mut().filter_map(|i| i.predicate.as_mut()) {
        *p = f(p);
    }
}

impl Work<'_> {
    pub(super) fn alter_table(&mut self, a: &AlterTable) -> Result<String> {
        let found = match self.find(&a.name)? {
            None if a.if_exists => {
                self.skip_missing(&a.name)?;
                return Ok("ALTER TABLE".into());
            }
            _ => self.resolve(&a.name)?,
        };
        let using = |o: &AlterTableOperation| {
            matches!(
                o,
                AlterTableOperation::AlterColumn {
                    op: sqlparser::ast::AlterColumnOperation::SetDataType { using: Some(_), .. },
                    ..
                }
            )
        };
        if a.operations.len() > 1 && a.operations.iter().any(using) {
            return Err(Error::unsupported(
                "ALTER COLUMN TYPE … USING beside other actions",
            ));
        }
        for operation in &a.operations {
            match operation {
                AlterTableOperation::RenameTable { table_name } => {
                    let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = table_name;
                    self.rename_relation(&found, to)?;
                }
                AlterTableOperation::OwnerTo { new_owner } => {
                    let owner = self.owner(new_owner)?;
                    if let Resolved::Relation(Relation::Table(t)) = &found {
                        self.not_awaited("ALTER TABLE", t.def.id)?;
                    }
                    self.change_owner(&found, owner)?;
                }
                other => match &found {
                    Resolved::Relation(Relation::Table(t)) => {
                        self.must_own("table", &t.def.name, t.def.owner)?;
                        let renames = matches!(
                            other,
                            AlterTableOperation::RenameColumn { .. }
                                | AlterTableOperation::RenameConstraint { .. }
                        );
                        if !renames {
                            self.not_awaited("ALTER TABLE", t.def.id)?;
                        }
                        self.alter_table_action(t.def.id, other)?;
                    }
                    Resolved::Relation(Relation::View(_)) => {
                        return Err(Error::unsupported("this form of ALTER VIEW"));
                    }
                    other => return Err(self.wrong_kind(other, "table")),
                },
            }
        }
        Ok("ALTER TABLE".into())
    }

    fn alter_table_action(&mut self, id: Oid, operation: &AlterTableOperation) -> Result<()> {
        use AlterTableOperation as O;
        let mut def = self.schema.table(id).expect("found").def.clone();
        match operation {
            O::AddColumn {
                if_not_exists,
                column_def,
                ..
            } => return self.add_column_action(def, column_def, *if_not_exists),
            O::DropColumn {
                column_names,
                if_exists,
                drop_behavior,
                ..
            } => {
                for name in column_names {
                    let name = catalog::fold(name);
                    let Some(at) = place(&def, &name) else {
                        let missing = no_column(&def, &name);
                        if !if_exists {
                            return Err(missing);
                        }
                        self.notice(
                            SqlState([b'0'; 5]),
                            format!("{}, skipping", missing.fields().message),
                        );
                        continue;
                    };
                    let node = Node::Column(id, at);
                    let what = self.describe(node);
                    self.drop_nodes(&[node], cascades(*drop_behavior), &what)?;
                }
                return Ok(());
            }
            O::RenameColumn {
                old_column_name,
                new_column_name,
            } => self.rename_column(&mut def, old_column_name, new_column_name)?,
            O::AlterColumn { column_name, op } => {
                return self.alter_column(def, &catalog::fold(column_name), op);
            }
            O::AddConstraint {
                constraint,
                not_valid,
            } => {
                let pending = vec![Pending {
                    constraint: constraint.clone(),
                    column: None,
                    not_valid: *not_valid,
                }];
                self.add_constraints(&mut def, pending)?;
            }
            O::DropConstraint {
                if_exists,
                name,
                drop_behavior,
            } => {
                let name = catalog::fold(name);
                let Some(node) = constraint_node(&def, &name) else {
                    let missing = no_constraint(&def, &name);
                    if !if_exists {
                        return Err(missing);
                    }
                    self.notice(
                        SqlState([b'0'; 5]),
                        format!("{}, skipping", missing.fields().message),
                    );
                    return Ok(());
                };
                if let Node::Foreign(_, fk) = node {
                    let mut keys = def.foreign_keys.iter().filter(|f| f.id == fk);
                    keys.try_for_each(|f| self.not_awaited("ALTER TABLE", f.ref_table))?;
                }
                let what = self.describe(node);
                return self.drop_nodes(&[node], cascades(*drop_behavior), &what);
            }
            O::RenameConstraint { old_name, new_name } => {
                self.rename_constraint(&mut def, old_name, new_name)?;
            }
            O::ValidateConstraint { name } => {
                let name = catalog::fold(name);
                validate(&mut def, &name)?;
            }
            O::SetOptionsParens { options } => return check_storage_parameters(options),
            O::SetLogged | O::SetUnlogged => return Ok(()),
            other => {
                return Err(Error::unsupported(format!(
                    "ALTER TABLE … {}",
                    super::first_words(&other.to_string())
                )));
            }
        }
        self.put(Object::Table(def));
        Ok(())
    }

    fn add_column_action(
        &mut self,
        mut def: TableDef,
        cd: &ColumnDef,
        if_not_exists: bool,
    ) -> Result<()> {
        let name = catalog::fold(&cd.name);
        if place(&def, &name).is_some() {
            let what = format!(
                "column \"{name}\" of relation \"{}\" already exists",
                def.name
            );
            if !if_not_exists {
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, what));
            }
            self.notice(SqlState::DUPLICATE_COLUMN, format!("{what}, skipping"));
            return Ok(());
        }
        let mut pending = vec![];
        self.add_column(&mut def, cd, &mut pending)?;
        let at = def.columns.len() - 1;
        next_row_version(&mut def)?;
        self.check_generated(&def)?;
        let mut fill = def.columns[at].generated;
        if let Some(text) = def.columns[at].default.clone().filter(|_| !fill) {
            let column = &def.columns[at];
            let e = expr_text::parse(&text)?;
            let (schema, path) = (&self.schema, self.ctx.search_path);
            // The value of a sequence differs from row to row: so do other volatile functions.
            let value = match column.identity.is_some() || text.contains("nextval(") {
                true => None,
                false => self
                    .ctx
                    .analyzer
                    .evaluate_default(schema, path, column, &e)?,
            };
            match value {
                Some(v) if v.is_null() => {}
                Some(v) => {
                    let mut bytes = vec![];
                    base::row::encode_value(column.ty().ty, &v, &mut bytes);
                    def.columns[at].missing = Some(bytes);
                }
                None => fill = true,
            }
        }
        if fill {
            self.fill_later(&def, at);
        }
        self.add_constraints(&mut def, pending)?;
        self.put(Object::Table(def));
        Ok(())
    }

    /// Leaves the values of the new column to be written when the changes are made.
    fn fill_later(&mut self, def: &TableDef, at: usize) {
        let column = at as base::ColumnIdx;
        let made = self.owned_sequences(|t, c| (t, c) == (def.id, column));
        let sequence = made.first().and_then(|s| self.schema.relation(*s));
        let with = match sequence {
            _ if def.columns[at].generated => With::Computed,
            Some(Relation::Sequence(s)) => With::Sequence((**s).clone()),
            _ => With::Default(def.columns[at].default.clone().unwrap_or_default()),
        };
        self.fills.push(Fill {
            table: def.id,
            column,
            with,
        });
    }

    fn rename_column(&mut self, def: &mut TableDef, from: &Ident, to: &Ident) -> Result<()> {
        let (from, to) = (catalog::fold(from), self.name(to));
        let at = place(def, &from).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{from}\" does not exist"),
            )
        })?;
        super::create_table::no_system_column(&to)?;
        if place(def, &to).is_some() {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!(
                    "column \"{to}\" of relation \"{}\" already exists",
                    def.name
                ),
            ));
        }
        if let Some(v) = self.views_of(def.id).first() {
            return Err(Error::unsupported(format!(
                "renaming a column of a table that {} reads",
                self.describe(Node::Relation(*v))
            )));
        }
        def.columns[at as usize].name = to.clone();
        each_text(def, &|text| expr_text::rename_column(text, &from, &to));
        Ok(())
    }

    fn rename_constraint(&mut self, def: &mut TableDef, from: &Ident, to: &Ident) -> Result<()> {
        let (from, to) = (catalog::fold(from), self.name(to));
        let Some(node) = constraint_node(def, &from) else {
            return Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!(
                    "constraint \"{from}\" for table \"{}\" does not exist",
                    def.name
                ),
            ));
        };
        if constraint_node(def, &to).is_some() {
            return Err(Error::new(
                SqlState::DUPLICATE_OBJECT,
                format!(
                    "constraint \"{to}\" for relation \"{}\" already exists",
                    def.name
                ),
            ));
        }
        match node {
            Node::Index(_, i) => {
                self.must_be_free(def.namespace, &to)?;
                let index = def.indexes.iter_mut().find(|x| x.id == i);
                index.expect("just found").name = to;
            }
            _ => {
                let checks = def.checks.iter_mut().map(|c| &mut c.name);
                let foreign = def.foreign_keys.iter_mut().map(|f| &mut f.name);
                let name = checks.chain(foreign).find(|n| **n == from);
                *name.expect("just found") = to;
            }
        }
        Ok(())
    }

    /// Gives a relation or an index another name in its schema.
    pub(super) fn rename_relation(&mut self, found: &Resolved, to: &ObjectName) -> Result<()> {
        let (_, to) = self.split(to)?;
        match found {
            Resolved::Index(t, at) => {
                self.must_own("index", &t.def.indexes[*at].name, t.def.owner)?;
                self.may_name_in(t.def.namespace)?;
                let t = self.schema.table(t.def.id).expect("found").clone();
                self.must_be_free(t.def.namespace, &to)?;
                let mut def = t.def.clone();
                def.indexes[*at].name = to;
                self.put(Object::Table(def));
                return Ok(());
            }
            Resolved::Virtual(_) => return Err(self.wrong_kind(found, "table")),
            Resolved::Relation(r) => {
                let (kind, owner) = kind_and_owner(r);
                self.must_own(kind, r.name(), owner)?;
                self.may_name_in(found.namespace())?;
            }
        }
        self.must_be_free(found.namespace(), &to)?;
        if let Some(v) = self.views_of(found.oid()).first() {
            return Err(Error::unsupported(format!(
                "renaming a relation that {} reads",
                self.describe(Node::Relation(*v))
            )));
        }
        match self.schema.relation(found.oid()).cloned() {
            Some(Relation::Table(t)) => {
                let mut def = t.def.clone();
                def.name = to;
                each_text(&mut def, &|text| expr_text::unqualified(text, &t.def.name));
                self.put(Object::Table(def));
            }
            Some(Relation::View(v)) => {
                let mut def = (*v).clone();
                def.name = to;
                self.put(Object::View(def));
            }
            Some(Relation::Sequence(s)) => self.rename_sequence(&s, to),
            None => {}
        }
        Ok(())
    }

    /// 42501 unless the role may give names in this schema.
    pub(super) fn may_name_in(&self, namespace: Oid) -> Result<()> {
        let create = base::schema::privilege::CREATE;
        privileges::check_namespace(&self.schema, self.ctx.role, namespace, create)
    }

    /// Renames a sequence, also in the defaults that name it.
    fn rename_sequence(&mut self, s: &base::schema::SequenceDef, to: String) {
        let (from, into) = (
            expr_text::quote_literal(&expr_text::sequence_name(self, s.namespace, &s.name)),
            expr_text::quote_literal(&expr_text::sequence_name(self, s.namespace, &to)),
        );
        for (t, c) in self.defaults_with(s.namespace, &s.name) {
            let mut def = self.schema.table(t).expect("listed").def.clone();
            let text = def.columns[c as usize].default.as_mut();
            let text = text.expect("listed for its default");
            *text = text.replace(&from, &into);
            self.put(Object::Table(def));
        }
        let mut def = s.clone();
        def.name = to;
        self.put(Object::Sequence(def));
    }

    /// OWNER TO. Sequences that a table owns follow it.
    pub(super) fn change_owner(&mut self, found: &Resolved, owner: Oid) -> Result<()> {
        let relation = match found {
            Resolved::Relation(r) => self.schema.relation(r.id()).cloned(),
            Resolved::Index(..) => return Ok(()),
            Resolved::Virtual(_) => return Err(self.wrong_kind(found, "table")),
        };
        let Some(relation) = relation else {
            return Ok(());
        };
        let (kind, old) = kind_and_owner(&relation);
        if old == owner {
            return Ok(());
        }
        self.must_own(kind, relation.name(), old)?;
        self.may_give_to(owner)?;
        if !self.superuser() {
            let create = base::schema::privilege::CREATE;
            privileges::check_namespace(&self.schema, owner, found.namespace(), create)?;
        }
        let moved = |acl: &mut base::schema::Acl| {
            for (to, _) in acl.iter_mut().filter(|(to, _)| *to == old) {
                *to = owner;
            }
        };
        match relation {
            Relation::Table(t) => {
                let mut def = t.def.clone();
                def.owner = owner;
                moved(&mut def.acl);
                def.columns.iter_mut().for_each(|c| moved(&mut c.acl));
                self.put(Object::Table(def));
                for s in self.owned_sequences(|x, _| x == t.def.id) {
                    if let Some(Relation::Sequence(s)) = self.schema.relation(s) {
                        let mut def = (**s).clone();
                        def.owner = owner;
                        moved(&mut def.acl);
                        self.put(Object::Sequence(def));
                    }
                }
            }
            Relation::View(v) => {
                let mut def = (*v).clone();
                def.owner = owner;
                moved(&mut def.acl);
                def.columns.iter_mut().for_each(|c| moved(&mut c.acl));
                self.put(Object::View(def));
            }
            Relation::Sequence(s) => {
                let mut def = (*s).clone();
                def.owner = owner;
                moved(&mut def.acl);
                self.put(Object::Sequence(def));
            }
        }
        Ok(())
    }
}

/// What the relation is called, and whose it is.
pub(super) fn kind_and_owner(r: &Relation) -> (&'static str, Oid) {
    match r {
        Relation::Table(t) => ("table", t.def.owner),
        Relation::View(v) => ("view", v.owner),
        Relation::Sequence(s) => ("sequence", s.owner),
    }
}

fn cascades(b: Option<DropBehavior>) -> bool {
    matches!(b, Some(DropBehavior::Cascade))
}

pub(super) fn no_column(def: &TableDef, name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!(
            "column \"{name}\" of relation \"{}\" does not exist",
            def.name
        ),
    )
}

fn no_constraint(def: &TableDef, name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!(
            "constraint \"{name}\" of relation \"{}\" does not exist",
            def.name
        ),
    )
}

/// VALIDATE CONSTRAINT: the rows that are there are asked when the change is made.
fn validate(def: &mut TableDef, name: &str) -> Result<()> {
    let check = def.checks.iter_mut().find(|c| c.name == name);
    if let Some(c) = check {
        c.not_valid = false;
        return Ok(());
    }
    let key = def.foreign_keys.iter_mut().find(|f| f.name == name);
    if let Some(f) = key {
        f.not_valid = false;
        return Ok(());
    }
    if constraint_node(def, name).is_none() {
        return Err(no_constraint(def, name));
    }
    Err(Error::new(
        SqlState::WRONG_OBJECT_TYPE,
        format!(
            "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
            def.name
        ),
    ))
}

fn constraint_node(def: &TableDef, name: &str) -> Option<Node> {
    let id = def.id;
    let keys = def
        .indexes
        .iter()
        .filter(|i| i.constraint && i.name == name);
    let checks = def.checks.iter().filter(|c| c.name == name);
    let foreign = def.foreign_keys.iter().filter(|f| f.name == name);
    keys.map(|i| Node::Index(id, i.id))
        .chain(checks.map(|c| Node::Check(id, c.id)))
        .chain(foreign.map(|f| Node::Foreign(id, f.id)))
        .next()
}

/// One more layout of the table's rows: 54000 when there were too many.
pub(super) fn next_row_version(def: &mut TableDef) -> Result<()> {
    def.row_version = def.row_version.checked_add(1).ok_or_else(|| {
        Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!(
                "the columns of table \"{}\" were changed too often",
                def.name
            ),
        )
    })?;
    Ok(())
}
