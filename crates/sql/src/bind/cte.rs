//! WITH. A CTE that is read once is bound where it is read; others are computed once, and so are those that call volatile functions; a recursive one runs in rounds.
//!
//! In a WITH that changes data every part that is computed becomes a step of the statement ([`logical::Step`]).

use super::from::{Names, rename};
use super::scope::{CteDef, CteKind, LateCte, ScopeColumn, ScopeRel};
use super::select::QCol;
use super::{Binder, Rel, Scope};
use crate::catalog::fold;
use crate::expr::{Expr, Slot};
use crate::logical::{self, From, Logical};
use base::{Error, Result, SqlState};
use sqlparser::ast::{self, CteAsMaterialized, SetExpr, TableAlias};
use std::cell::RefCell;

/// Queries that NOT MATERIALIZED may have bound anew for all references to a CTE; above that it is computed once all the same.
const MOST_INLINED: usize = 32;

/// Queries of one WITH. Each is bound inside of those before it.
const MOST_CTES: usize = 1000;

/// Where a reference gets a CTE's rows.
pub(super) enum CteSource<'s, 'p> {
    Inline {
        query: &'s ast::Query,
        alias: &'s TableAlias,
        around: &'s Scope<'p>,
        /// It is named once.
        once: bool,
        late: &'s RefCell<Option<LateCte>>,
    },
    Rows {
        id: usize,
        work: bool,
    },
}

impl Binder<'_> {
    /// Binds the CTEs from number `i` on, each in the scope of those before it, then `body` inside all of them.
    pub(crate) fn with(
        &mut self,
        w: &ast::With,
        i: usize,
        scope: &Scope<'_>,
        body: &mut dyn FnMut(&mut Self, &Scope<'_>) -> Result<Rel>,
    ) -> Result<Rel> {
        let Some(cte) = w.cte_tables.get(i) else {
            return body(self, scope);
        };
        if w.cte_tables.len() > MOST_CTES {
            let what = "stack depth limit exceeded";
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, what)
                .hint(format!("A WITH may have at most {MOST_CTES} queries.")));
        }
        let name = fold(&cte.alias.name);
        if w.cte_tables[..i]
            .iter()
            .any(|c| fold(&c.alias.name) == name)
        {
            return Err(Error::new(
                SqlState::DUPLICATE_ALIAS,
                format!("WITH query name \"{name}\" specified more than once"),
            ));
        }
        if let Some(written) = super::written(&cte.query) {
            return self.write_step(w, i, (&name, written), scope, body);
        }
        let text = crate::printed::printed(&cte.query);
        let own = mentions(&text, &name)?;
        if w.recursive && own > 0 {
            return self.recursive(w, i, &name, cte, scope, body);
        }
        let after = mentions_in(&w.cte_tables[i + 1..], &name)?;
        let here = self.with_mentions(w, &name)?;
        base::cancel::check_cancelled()?;
        let queries = scope.queries_of(|name| mentions(&text, name).unwrap_or(0));
        let inline = match cte.materialized {
            Some(CteAsMaterialized::Materialized) => false,
            // Each level that is named twice doubles what has to be bound and planned.
            Some(CteAsMaterialized::NotMaterialized) => {
                queries.saturating_mul(after + here) <= MOST_INLINED
            }
            None => after + here <= 1,
        };
        let mut around = Scope::inside(scope);
        if inline {
            around.cte = Some(CteDef {
                name,
                cols: vec![],
                deps: vec![],
                kind: CteKind::Inline {
                    query: &cte.query,
                    alias: &cte.alias,
                    once: after + here <= 1,
                },
                late: RefCell::default(),
                queries,
            });
            let at = self.steps.len();
            let mut inner = self.with(w, i + 1, &around, body)?;
            let late = around.cte.and_then(|c| c.late.into_inner());
            if let Some(LateCte { made, .. }) = late {
                match self.steps_at(scope) {
                    true => self.steps.insert(at, step_of(made)),
                    false => inner.node = with_cte(made, inner.node),
                }
            }
            return Ok(inner);
        }
        let boundary = Scope::boundary(scope);
        let rel = self.query(&cte.query, &boundary, None)?;
        let deps = boundary.take_crossed();
        let id = self.ctes;
        self.ctes += 1;
        let cols = named(rel.cols, &cte.alias, &name)?;
        let slots = cols.iter().map(|c| c.slot).collect();
        around.cte = Some(CteDef {
            name: name.clone(),
            cols,
            deps,
            kind: CteKind::Shared(id),
            late: RefCell::default(),
            queries: 0,
        });
        let made = logical::Cte {
            id,
            name,
            input: rel.node,
            slots,
        };
        self.computed(made, scope, &mut |b| b.with(w, i + 1, &around, body))
    }

    /// What stands behind a CTE that is computed once: inside of it, or after it where the WITH changes data.
    fn computed(
        &mut self,
        made: logical::Cte,
        scope: &Scope<'_>,
        behind: &mut dyn FnMut(&mut Self) -> Result<Rel>,
    ) -> Result<Rel> {
        if self.steps_at(scope) {
            self.steps.push(step_of(made));
            return behind(self);
        }
        let mut inner = behind(self)?;
        inner.node = with_cte(made, inner.node);
        Ok(inner)
    }

    /// Whether a WITH in this scope is the statement's own, and one that changes data.
    fn steps_at(&self, scope: &Scope<'_>) -> bool {
        self.stepwise && self.views.is_empty() && !self.stored && scope.is_top()
    }

    /// Binds CTE number `i`, which writes, and then what stands behind it.
    fn write_step(
        &mut self,
        w: &ast::With,
        i: usize,
        (name, written): (&str, &ast::Statement),
        scope: &Scope<'_>,
        body: &mut dyn FnMut(&mut Self, &Scope<'_>) -> Result<Rel>,
    ) -> Result<Rel> {
        if !self.steps_at(scope) {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "WITH clause containing a data-modifying statement must be at the top level",
            ));
        }
        if matches!(written, ast::Statement::Merge(_)) {
            return Err(Error::unsupported("MERGE in a WITH query"));
        }
        let cte = &w.cte_tables[i];
        let boundary = Scope::boundary(scope);
        let (_, root, cols) = self.write_with(&cte.query, written, &boundary)?;
        let id = self.ctes;
        self.ctes += 1;
        let slots = cols.iter().map(|c| c.slot).collect();
        let kind = match root.returns() {
            true => CteKind::Shared(id),
            false => CteKind::Silent,
        };
        let cols = match root.returns() {
            true => named(cols, &cte.alias, name)?,
            false => cols,
        };
        self.steps.push(logical::Step {
            id,
            name: name.to_owned(),
            root,
            slots,
        });
        let mut around = Scope::inside(scope);
        around.cte = Some(CteDef {
            name: name.to_owned(),
            cols,
            deps: vec![],
            kind,
            late: RefCell::default(),
            queries: 0,
        });
        self.with(w, i + 1, &around, body)
    }

    /// How often the statement behind the WITH mentions a name; the text stands in the context when it is known.
    fn with_mentions(&self, w: &ast::With, name: &str) -> Result<usize> {
        let _ = w;
        // The WITH itself names it once; what lies between the WITH and the body counts for it, which only makes a CTE
        // be computed once that might have been inlined. The WITH of a view stands in the view's text.
        let text = self
            .meanings
            .last()
            .map_or(self.cx.source, |m| m.text.as_str());
        if text.is_empty() {
            return Ok(2);
        }
        let all = mentions(text, name)?;
        let inside = mentions_in(&w.cte_tables, name)?;
        Ok(all.saturating_sub(1 + inside).max(1))
    }

    fn recursive(
        &mut self,
        w: &ast::With,
        i: usize,
        name: &str,
        cte: &ast::Cte,
        scope: &Scope<'_>,
        body: &mut dyn FnMut(&mut Self, &Scope<'_>) -> Result<Rel>,
    ) -> Result<Rel> {
        let q = &cte.query;
        if q.order_by.is_some() || q.limit_clause.is_some() || !q.locks.is_empty() {
            return Err(Error::unsupported("ORDER BY or LIMIT in a recursive query"));
        }
        let work = self.ctes;
        self.ctes += 1;
        let boundary = Scope::boundary(scope);
        let round = self.slot(String::new());
        let mut step = |b: &mut Self, e: &SetExpr, cols: &[QCol]| {
            let mut inner = Scope::inside(&boundary);
            inner.cte = Some(CteDef {
                name: name.to_owned(),
                cols: named(cols.to_vec(), &cte.alias, name)?,
                deps: vec![round],
                kind: CteKind::Work(work),
                late: RefCell::default(),
                queries: 0,
            });
            b.in_recursion(name, |b| b.step(e, &inner))
        };
        let (first, step, distinct, cols) =
            self.recursive_parts(&q.body, &boundary, name, &mut step)?;
        let deps = boundary.take_crossed();
        let slots: Vec<Slot> = cols.iter().map(|c| c.slot).collect();
        let plan = Logical::Recursive {
            id: work,
            first: Box::new(first),
            step: Box::new(step),
            distinct,
            slots: slots.clone(),
        };
        let cols = named(cols, &cte.alias, name)?;
        let mut around = Scope::inside(scope);
        let after = mentions_in(&w.cte_tables[i + 1..], name)?;
        if after + self.with_mentions(w, name)? <= 1 {
            // Read once: rows are made as they are asked for, so that a LIMIT ends an endless recursion.
            around.cte = Some(CteDef {
                name: name.to_owned(),
                cols,
                deps,
                kind: CteKind::Shared(work),
                late: RefCell::default(),
                queries: 0,
            });
            self.lazy.push((work, plan));
            let inner = self.with(w, i + 1, &around, body);
            self.lazy.retain(|(id, _)| *id != work);
            return inner;
        }
        let id = self.ctes;
        self.ctes += 1;
        around.cte = Some(CteDef {
            name: name.to_owned(),
            cols,
            deps,
            kind: CteKind::Shared(id),
            late: RefCell::default(),
            queries: 0,
        });
        let made = logical::Cte {
            id,
            name: name.to_owned(),
            input: plan,
            slots,
        };
        self.computed(made, scope, &mut |b| b.with(w, i + 1, &around, body))
    }

    /// A CTE that turned out to call volatile functions.
    fn late_cte(
        &mut self,
        rel: Rel,
        (name, alias): (&str, &TableAlias),
        deps: Vec<Slot>,
    ) -> Result<LateCte> {
        let id = self.ctes;
        self.ctes += 1;
        let cols = named(rel.cols, alias, name)?;
        let made = logical::Cte {
            id,
            name: name.to_owned(),
            input: rel.node,
            slots: cols.iter().map(|c| c.slot).collect(),
        };
        Ok(LateCte { made, cols, deps })
    }

    /// A CTE's name in FROM.
    pub(super) fn cte_reference(
        &mut self,
        name: &str,
        source: CteSource<'_, '_>,
        (cols, deps): (&[QCol], Vec<Slot>),
        reader: &Scope<'_>,
        alias: Option<&TableAlias>,
        melt: bool,
    ) -> Result<(From, Names)> {
        match source {
            CteSource::Inline {
                query,
                alias: own,
                around,
                once,
                late,
            } => {
                if let Some(l) = &*late.borrow() {
                    reader.cross(around, &l.deps);
                    let rows = CteSource::Rows {
                        id: l.made.id,
                        work: false,
                    };
                    let known = (&l.cols[..], l.deps.clone());
                    return self.cte_reference(name, rows, known, reader, alias, melt);
                }
                let boundary = Scope::boundary(around);
                let before = self.volatile;
                let selected = self.query_or_flat(query, &boundary, None)?;
                let crossed = boundary.take_crossed();
                if self.volatile > before {
                    let rel = self.finish_selected(selected)?;
                    let made = self.late_cte(rel, (name, own), crossed)?;
                    if once && reader.is_beside(around) {
                        // Its one reader begins with the WITH: rows are made as they are asked for, and no more of them.
                        let LateCte { made, cols, deps } = made;
                        reader.cross(around, &deps);
                        let slots = made.slots.iter();
                        slots.for_each(|s| self.used[*s as usize] = true);
                        let rows = CteSource::Rows {
                            id: made.id,
                            work: false,
                        };
                        self.lazy.push((made.id, made.input));
                        return self.cte_reference(name, rows, (&cols, deps), reader, alias, melt);
                    }
                    *late.borrow_mut() = Some(made);
                    let source = CteSource::Inline {
                        query,
                        alias: own,
                        around,
                        once,
                        late,
                    };
                    return self.cte_reference(name, source, (cols, deps), reader, alias, melt);
                }
                reader.cross(around, &crossed);
                let columns: Vec<String> = own.columns.iter().map(|c| fold(&c.name)).collect();
                let width = match &selected {
                    super::select::Selected::Rel(r) => r.cols.len(),
                    super::select::Selected::Flat { cols, .. } => cols.len(),
                };
                check_width(name, width, columns.len())?;
                self.derived(
                    selected,
                    alias,
                    Some((name, None, 0)),
                    (!columns.is_empty()).then_some(&columns),
                    crossed,
                    melt,
                )
            }
            CteSource::Rows { id, work } => self.cte_rows(name, (id, work), (cols, deps), alias),
        }
    }

    /// A CTE whose rows are computed once. `work`: the rows of the round before, in the recursive part itself.
    fn cte_rows(
        &mut self,
        name: &str,
        (id, work): (usize, bool),
        (cols, deps): (&[QCol], Vec<Slot>),
        alias: Option<&TableAlias>,
    ) -> Result<(From, Names)> {
        if work {
            self.recurs(name)?;
        }
        self.relations += 1;
        let shown = alias.map_or(name.to_owned(), |a| fold(&a.name));
        if let Some(at) = self.lazy.iter().position(|(l, _)| *l == id)
            && !work
        {
            let (_, node) = self.lazy.remove(at);
            let columns = scope_columns(cols, |c| c.slot);
            let item = From::Rel {
                rel: Box::new(node),
                slots: cols.iter().map(|c| c.slot).collect(),
                deps,
            };
            let rel = ScopeRel {
                alias: shown,
                schema: None,
                columns,
                system: None,
            };
            return Ok((item, Names::one(rename(rel, alias)?)));
        }
        let mut out = Vec::new();
        for c in cols {
            let s = self.slot(format!("{shown}.{}", c.name));
            self.used[s as usize] = true;
            out.push(s);
        }
        let mut slots = out.iter().copied();
        let columns = scope_columns(cols, |_| slots.next().expect("one each"));
        let rel = ScopeRel {
            alias: shown,
            schema: None,
            columns,
            system: None,
        };
        let item = From::Cte {
            id,
            name: name.to_owned(),
            out,
            deps,
            work,
        };
        Ok((item, Names::one(rename(rel, alias)?)))
    }
}

fn step_of(made: logical::Cte) -> logical::Step {
    logical::Step {
        id: made.id,
        name: made.name,
        root: logical::Root::Rows(made.input),
        slots: made.slots,
    }
}

fn with_cte(made: logical::Cte, input: Logical) -> Logical {
    Logical::With {
        ctes: vec![made],
        input: Box::new(input),
    }
}

/// Whether a part of the query's WITH writes.
pub(super) fn changes_data(q: &ast::Query) -> bool {
    let writes = |c: &ast::Cte| {
        matches!(
            &*c.query.body,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
        )
    };
    q.with.iter().flat_map(|w| &w.cte_tables).any(writes)
}

fn scope_columns(cols: &[QCol], mut slot: impl FnMut(&QCol) -> Slot) -> Vec<ScopeColumn> {
    cols.iter()
        .map(|c| ScopeColumn {
            name: c.name.clone(),
            expr: Expr::Slot(slot(c)),
            ty: c.ty,
            origin: (0, 0),
        })
        .collect()
}

fn check_width(name: &str, have: usize, want: usize) -> Result<()> {
    if want > have {
        return Err(Error::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!(
                "WITH query \"{name}\" has {have} columns available but {want} columns specified"
            ),
        ));
    }
    Ok(())
}

/// Applies the column names of a WITH entry.
fn named(mut cols: Vec<QCol>, alias: &TableAlias, name: &str) -> Result<Vec<QCol>> {
    check_width(name, cols.len(), alias.columns.len())?;
    for (c, n) in cols.iter_mut().zip(&alias.columns) {
        c.name = fold(&n.name);
    }
    Ok(cols)
}

/// How often a text has `name` as a word.
fn mentions(text: &str, name: &str) -> Result<usize> {
    base::cancel::work(text.len())?;
    let lower = text.to_lowercase();
    // A quote in a quoted name is doubled.
    let name = name.to_lowercase().replace('"', "\"\"");
    if name.is_empty() {
        return Ok(0);
    }
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    Ok(lower
        .match_indices(&name)
        .filter(|(i, _)| {
            !word(lower[..*i].chars().next_back()) && !word(lower[i + name.len()..].chars().next())
        })
        .count())
}

/// How often these CTEs name one.
fn mentions_in(ctes: &[ast::Cte], name: &str) -> Result<usize> {
    ctes.iter().try_fold(0, |n, c| {
        Ok(n + mentions(&crate::printed::printed(&c.query), name)?)
    })
}
