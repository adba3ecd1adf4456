//! What names mean at a place in a query.
//!
//! A scope holds the relations of one FROM clause (and the CTEs of one WITH); its parent is the enclosing query's. The
//! boundary of a subquery is a scope without relations that notes every slot that is read across it.

use super::system::{System, is_system};
use super::{Binder, Bound};
use crate::catalog::{self, fold};
use crate::expr::{Expr, Slot};
use crate::logical;
use base::schema::ViewDef;
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{self, Ident};
use std::cell::RefCell;

/// A column that a name can mean.
#[derive(Clone, Debug)]
pub struct ScopeColumn {
    pub name: String,
    pub expr: Expr,
    pub ty: ColumnType,
    /// Table and 1-based column number, for the row description.
    pub origin: (Oid, i16),
}

/// A relation of a FROM clause.
#[derive(Clone, Debug)]
pub struct ScopeRel {
    pub alias: String,
    /// Namespace, when the relation may be written with it (no alias).
    pub schema: Option<String>,
    pub columns: Vec<ScopeColumn>,
    /// What the system columns are made of, where it has them.
    pub system: Option<Box<System>>,
}

/// What the names in a view's query mean.
pub struct Meaning {
    /// The relations that the view was made of.
    depends_on: Vec<Oid>,
    /// The query.
    pub text: String,
}

impl Meaning {
    pub fn of(v: &ViewDef) -> Meaning {
        Meaning {
            depends_on: v.depends_on.clone(),
            text: v.query.clone(),
        }
    }
}

/// A common table expression.
pub struct CteDef<'p> {
    pub name: String,
    pub cols: Vec<super::QCol>,
    /// Slots that the rows depend on: columns of queries around the WITH, and for the rows of a recursion a slot that stands
    /// for the round.
    pub deps: Vec<Slot>,
    pub kind: CteKind<'p>,
    /// One that was to be bound where it is named, and calls volatile functions: it is computed once all the same.
    pub late: RefCell<Option<LateCte>>,
    /// How many queries a reference binds, with those that it refers to in its turn.
    pub queries: usize,
}

/// A CTE that was bound where it is named, to be computed by its WITH.
pub struct LateCte {
    pub made: logical::Cte,
    pub cols: Vec<super::QCol>,
    /// Slots that the rows depend on.
    pub deps: Vec<Slot>,
}

#[derive(Clone, Copy)]
pub enum CteKind<'p> {
    /// Referenced once: bound where it is referenced, in the scope around its WITH entry.
    Inline {
        query: &'p ast::Query,
        alias: &'p ast::TableAlias,
        /// It is named once.
        once: bool,
    },
    /// Computed once, by the WITH.
    Shared(usize),
    /// Writes, and has no RETURNING: there is nothing to read.
    Silent,
    /// The rows of the round before, inside the recursive part.
    Work(usize),
}

#[derive(Default)]
pub struct Scope<'p> {
    pub parent: Option<&'p Scope<'p>>,
    pub rels: Vec<ScopeRel>,
    /// What `*` means and unqualified names are looked up in: columns merged by USING stand once.
    pub star: Vec<ScopeColumn>,
    pub cte: Option<CteDef<'p>>,
    /// Slots read across this boundary.
    pub crossed: Option<RefCell<Vec<Slot>>>,
}

impl<'p> Scope<'p> {
    /// Whether nothing but parts of the statement's own WITH stands around.
    pub fn is_top(&self) -> bool {
        self.rels.is_empty() && self.crossed.is_none() && self.parent.is_none_or(Scope::is_top)
    }

    /// The scope outside everything.
    pub fn root() -> Scope<'static> {
        Scope::default()
    }

    /// A scope inside `parent`.
    pub fn inside(parent: &'p Scope<'p>) -> Scope<'p> {
        Scope {
            parent: Some(parent),
            ..Scope::default()
        }
    }

    /// The boundary of a subquery.
    pub fn boundary(parent: &'p Scope<'p>) -> Scope<'p> {
        Scope {
            parent: Some(parent),
            crossed: Some(RefCell::new(vec![])),
            ..Scope::default()
        }
    }

    /// Slots that were read across this boundary, each once.
    pub fn take_crossed(&self) -> Vec<Slot> {
        let mut v = self.crossed.as_ref().map_or(vec![], |c| c.take());
        v.sort_unstable();
        v.dedup();
        v
    }

    /// Notes that slots known at `until`, a scope around this one, are read here.
    pub fn cross(&self, until: &Scope<'_>, slots: &[Slot]) {
        let mut at = Some(self);
        while let Some(s) = at
            && std::ptr::from_ref(s).cast::<()>() != std::ptr::from_ref(until).cast::<()>()
        {
            if let Some(c) = &s.crossed {
                c.borrow_mut().extend(slots);
            }
            at = s.parent;
        }
    }

    /// Whether no boundary lies between this scope and `until`, a scope around it.
    pub fn is_beside(&self, until: &Scope<'_>) -> bool {
        let mut at = Some(self);
        while let Some(s) = at
            && std::ptr::from_ref(s).cast::<()>() != std::ptr::from_ref(until).cast::<()>()
        {
            if s.crossed.is_some() {
                return false;
            }
            at = s.parent;
        }
        true
    }

    /// Adds a relation; 42712 when its name is taken.
    pub fn add(&mut self, rel: ScopeRel) -> Result<()> {
        if self
            .rels
            .iter()
            .any(|r| r.alias == rel.alias && !rel.alias.is_empty())
        {
            return Err(Error::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{}\" specified more than once", rel.alias),
            ));
        }
        self.star.extend(rel.columns.iter().cloned());
        self.rels.push(rel);
        Ok(())
    }

    /// The CTE of this name, with the scope around it.
    /// How many queries are bound for this text, with those of the CTEs that it names and that are bound where they are named.
    pub fn queries_of(&self, named: impl Fn(&str) -> usize) -> usize {
        let mut queries = 1usize;
        let mut scope = Some(self);
        while let Some(s) = scope {
            if let Some(c) = s.cte.as_ref().filter(|c| c.queries > 0) {
                queries = queries.saturating_add(named(&c.name).saturating_mul(c.queries));
            }
            scope = s.parent;
        }
        queries
    }

    pub fn find_cte(&self, name: &str) -> Option<(&CteDef<'p>, &Scope<'p>)> {
        let mut s = self;
        loop {
            if let Some(c) = &s.cte
                && c.name == name
            {
                return Some((c, s));
            }
            s = s.parent?;
        }
    }

    /// Slots of this scope's own relations.
    pub fn own_slots(&self) -> Vec<Slot> {
        let mut v = Vec::new();
        for c in self.rels.iter().flat_map(|r| &r.columns).chain(&self.star) {
            c.expr.slots(&mut |s| v.push(s));
        }
        let systems = self.rels.iter().filter_map(|r| r.system.as_ref());
        systems.for_each(|s| v.extend(s.key.into_iter().chain(s.updated)));
        v.sort_unstable();
        v.dedup();
        v
    }
}

fn ambiguous(name: &str) -> Error {
    Error::new(
        SqlState::AMBIGUOUS_COLUMN,
        format!("column reference \"{name}\" is ambiguous"),
    )
}

impl Binder<'_> {
    /// Notes that a column is read, across these boundaries.
    fn reference(&mut self, c: &ScopeColumn, crossed: &[&RefCell<Vec<Slot>>]) -> Bound {
        self.reads_column(c.origin);
        c.expr.slots(&mut |s| {
            self.used[s as usize] = true;
            for b in crossed {
                b.borrow_mut().push(s);
            }
        });
        Bound {
            expr: c.expr.clone(),
            ty: c.ty,
        }
    }

    /// An unqualified column; `None` when there is none of the name.
    pub fn find_column(
        &mut self,
        name: &str,
        scope: &Scope<'_>,
    ) -> Result<Option<(Bound, (Oid, i16))>> {
        let mut crossed = Vec::new();
        let mut at = Some(scope);
        while let Some(s) = at {
            let mut hits = s.star.iter().filter(|c| c.name == name);
            if let Some(c) = hits.next() {
                if hits.next().is_some() {
                    return Err(ambiguous(name));
                }
                let origin = c.origin;
                return Ok(Some((self.reference(c, &crossed), origin)));
            }
            crossed.extend(&s.crossed);
            at = s.parent;
        }
        Ok(None)
    }

    /// The system column that a name without a qualifier means; none where it means none.
    fn system_column(&mut self, name: &str, scope: &Scope<'_>) -> Result<Option<Bound>> {
        if !is_system(name) {
            return Ok(None);
        }
        let mut crossed = Vec::new();
        let mut at = Some(scope);
        while let Some(s) = at {
            let mut found = s.rels.iter().filter_map(|r| r.system.as_ref());
            if let Some(system) = found.next() {
                if found.next().is_some() {
                    return Err(ambiguous(name));
                }
                return self.system_value(name, system, &crossed).map(Some);
            }
            crossed.extend(&s.crossed);
            at = s.parent;
        }
        Ok(None)
    }

    fn system_value(
        &mut self,
        name: &str,
        system: &System,
        crossed: &[&RefCell<Vec<Slot>>],
    ) -> Result<Bound> {
        let (expr, ty) = system.value(name)?;
        self.reads_column((system.table, 0));
        expr.slots(&mut |s| {
            self.used[s as usize] = true;
            for b in crossed {
                b.borrow_mut().push(s);
            }
        });
        Ok(Bound::new(expr, ty))
    }

    /// The relation that a qualifier means, and the boundaries on the way.
    pub(super) fn find_rel<'s>(
        &self,
        schema: Option<&str>,
        alias: &str,
        scope: &'s Scope<'s>,
    ) -> Option<(&'s ScopeRel, Vec<&'s RefCell<Vec<Slot>>>)> {
        let mut crossed = Vec::new();
        let mut at = Some(scope);
        while let Some(s) = at {
            let hit = s.rels.iter().find(|r| {
                r.alias == alias && schema.is_none_or(|n| r.schema.as_deref() == Some(n))
            });
            if let Some(r) = hit {
                return Some((r, crossed));
            }
            crossed.extend(&s.crossed);
            at = s.parent;
        }
        None
    }

    /// A name that stands for a value: a column, or a whole row.
    pub fn bind_name(&mut self, parts: &[Ident], scope: &Scope<'_>) -> Result<(Bound, (Oid, i16))> {
        let at = parts.first().map_or(0, |i| self.position(i.span.start));
        self.lookup(parts, scope).map_err(|e| {
            if e.fields().position == 0 {
                e.at(at)
            } else {
                e
            }
        })
    }

    fn lookup(&mut self, parts: &[Ident], scope: &Scope<'_>) -> Result<(Bound, (Oid, i16))> {
        let names: Vec<String> = parts.iter().map(fold).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names[..] {
            [column] => {
                if let Some(hit) = self.find_column(column, scope)? {
                    return Ok(hit);
                }
                if let Some((rel, crossed)) = self.find_rel(None, column, scope) {
                    return Ok((self.whole_row(&rel.clone(), &crossed)?, (0, 0)));
                }
                if let Some(b) = self.system_column(column, scope)? {
                    return Ok((b, (0, 0)));
                }
                if column == "tableoid"
                    && let [rel] = &scope.rels[..]
                {
                    let oid = rel.columns.first().map_or(0, |c| c.origin.0);
                    return Ok((
                        Bound::new(Expr::Const(base::Value::Oid(oid)), Type::Oid),
                        (0, 0),
                    ));
                }
                if parts[0].quote_style.is_none() && crate::types::ident::is_keyword(column) {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        format!("syntax error at or near \"{}\"", parts[0].value),
                    ));
                }
                Err(Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{column}\" does not exist"),
                ))
            }
            [alias, column] => self.qualified(None, alias, column, scope),
            [schema, alias, column] => self.qualified(Some(schema), alias, column, scope),
            [database, schema, alias, column] => {
                self.must_be_this_database(database, &names.join("."))?;
                self.qualified(Some(schema), alias, column, scope)
            }
            _ => Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!(
                    "improper qualified name (too many dotted names): {}",
                    names.join(".")
                ),
            )),
        }
    }

    fn qualified(
        &mut self,
        schema: Option<&str>,
        alias: &str,
        column: &str,
        scope: &Scope<'_>,
    ) -> Result<(Bound, (Oid, i16))> {
        let Some((rel, crossed)) = self.find_rel(schema, alias, scope) else {
            let shown = schema.map_or(alias.to_owned(), |s| format!("{s}.{alias}"));
            return Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{shown}\""),
            ));
        };
        let mut hits = rel.columns.iter().filter(|c| c.name == column);
        match (hits.next(), hits.next()) {
            (Some(c), None) => Ok((self.reference(c, &crossed), c.origin)),
            (Some(_), Some(_)) => Err(ambiguous(column)),
            (None, _) if rel.system.is_some() && is_system(column) => {
                let system = rel.system.clone().expect("just looked at");
                Ok((self.system_value(column, &system, &crossed)?, (0, 0)))
            }
            (None, _) if column == "tableoid" => {
                let oid = rel.columns.first().map_or(0, |c| c.origin.0);
                let e = Expr::Const(base::Value::Oid(oid));
                Ok((Bound::new(e, Type::Oid), (0, 0)))
            }
            (None, _) => Err(Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column {alias}.{column} does not exist"),
            )),
        }
    }

    /// 0A000 for a name that begins with another database.
    fn must_be_this_database(&self, database: &str, name: &str) -> Result<()> {
        if database == self.cx.session.database() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "cross-database references are not implemented: {name}"
        )))
    }

    /// What the name of a relation means; 42P01, and 0A000 for one of another database.
    pub(super) fn relation(&mut self, name: &ast::ObjectName) -> Result<catalog::Resolved> {
        if let [ast::ObjectNamePart::Identifier(database), _, _] = &name.0[..] {
            self.must_be_this_database(&fold(database), &name.to_string())?;
        }
        if let (Some(n), _) = catalog::split_name(name)? {
            self.name_schema(&n)?;
        }
        let found = match self.meant_by_view(name)? {
            Some(found) => found,
            None => catalog::resolve(&self.cx.catalog.schema, &self.path, name)?,
        };
        self.found_in(found.namespace());
        Ok(found)
    }

    /// What a name without a schema means in the query of a view: one of the relations that the view was made of, or else a catalog. Another
    /// relation of that name may have come in front of it on the path since.
    fn meant_by_view(&self, name: &ast::ObjectName) -> Result<Option<catalog::Resolved>> {
        let (Some(view), (None, plain)) = (self.meanings.last(), catalog::split_name(name)?) else {
            return Ok(None);
        };
        let schema = &self.cx.catalog.schema;
        let path: Vec<Oid> = catalog::namespaces(schema, &self.path).collect();
        let known = path.iter().find_map(|n| {
            let id = schema.lookup(*n, &plain)?;
            view.depends_on.contains(&id).then_some(id)
        });
        if let Some(id) = known {
            return Ok(catalog::by_oid(schema, id));
        }
        let fixed = path.iter().find_map(|n| catalog::virtual_table(*n, &plain));
        Ok(fixed.map(catalog::Resolved::Virtual))
    }

    fn whole_row(&mut self, rel: &ScopeRel, crossed: &[&RefCell<Vec<Slot>>]) -> Result<Bound> {
        // The row of a function that gives plain values is such a value.
        if let [c] = &rel.columns[..]
            && let Expr::Slot(s) = c.expr
            && self
                .scalars
                .iter()
                .any(|(slot, name)| *slot == s && *name == rel.alias)
        {
            return Ok(self.reference(c, crossed));
        }
        let mut items: Vec<(Expr, Type)> = Vec::with_capacity(rel.columns.len());
        for c in &rel.columns {
            let b = self.reference(c, crossed);
            let b = self.with_blanks(b)?;
            items.push((b.expr, b.ty.ty));
        }
        let whens = vec![(super::json_rows::left_empty(&items), Expr::NULL)];
        let otherwise = Box::new(Expr::Record(items));
        Ok(Bound::new(Expr::Case { whens, otherwise }, Type::Record))
    }

    /// The columns of `alias.*`.
    pub fn star_of(&mut self, parts: &[Ident], scope: &Scope<'_>) -> Result<Vec<ScopeColumn>> {
        let names: Vec<String> = parts.iter().map(fold).collect();
        let (schema, alias) = match &names[..] {
            [a] => (None, a),
            [.., s, a] => (Some(s.as_str()), a),
            [] => return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error at \"*\"")),
        };
        let Some((rel, crossed)) = self.find_rel(schema, alias, scope) else {
            return Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{alias}\""),
            )
            .at(self.position(parts[0].span.start)));
        };
        let columns = rel.columns.clone();
        for c in &columns {
            self.reference(c, &crossed);
        }
        Ok(columns)
    }

    /// The columns of `*`.
    pub fn star(&mut self, scope: &Scope<'_>) -> Result<Vec<ScopeColumn>> {
        if scope.rels.is_empty() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "SELECT * with no tables specified is not valid",
            ));
        }
        let columns = scope.star.clone();
        for c in &columns {
            self.reference(c, &[]);
        }
        Ok(columns)
    }
}
