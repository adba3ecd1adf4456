//! Select lists: expressions with names, `*`, and the entries that ORDER BY adds.

use super::expr::Env;
use super::query::ordinal;
use super::scope::ScopeColumn;
use super::select::QCol;
use super::{Binder, Bound, Scope};
use crate::catalog::fold;
use crate::expr::{Expr, Slot};
use crate::logical::Logical;
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{self, Expr as Ast, SelectItem, SelectItemQualifiedWildcardKind};
use std::sync::Arc;

/// An entry of a select list.
#[derive(Clone)]
pub(crate) struct Target {
    pub name: String,
    pub bound: Bound,
    pub origin: (Oid, i16),
}

/// Most columns of a result, as PostgreSQL has it. The protocol counts them in 16 bits.
pub(super) const MAX_ENTRIES: usize = 1664;

/// 54011 for a list of more entries than a result may have.
pub(super) fn must_fit(entries: usize) -> Result<()> {
    if entries <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Error::new(
        SqlState::TOO_MANY_COLUMNS,
        format!("target lists can have at most {MAX_ENTRIES} entries"),
    ))
}

impl Binder<'_> {
    /// Binds a select list.
    pub(crate) fn targets(
        &mut self,
        items: &[SelectItem],
        env: &mut Env<'_, '_>,
    ) -> Result<Vec<Target>> {
        let mut out = Vec::new();
        for item in items {
            must_fit(out.len())?;
            match item {
                none if super::no_columns::is_mark(none) => {}
                SelectItem::UnnamedExpr(e) => match super::syntax::starred(e) {
                    Some(value) => self.composite_star(&value, env, &mut out)?,
                    None => out.push(self.entry(e, None, env)?),
                },
                SelectItem::ExprWithAlias { expr, alias } => {
                    out.push(self.entry(expr, Some(fold(alias)), env)?);
                }
                SelectItem::Wildcard(o) => {
                    plain_star(o)?;
                    let scope = env.scope;
                    let columns = self.star(scope)?;
                    self.note_star(o, &columns, None, scope);
                    out.extend(columns.into_iter().map(of_column));
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(n),
                    o,
                ) => {
                    plain_star(o)?;
                    let parts: Vec<ast::Ident> =
                        n.0.iter().filter_map(|p| p.as_ident().cloned()).collect();
                    let scope = env.scope;
                    let columns = self.star_of(&parts, scope)?;
                    self.note_star(o, &columns, Some(&n.to_string()), scope);
                    out.extend(columns.into_iter().map(of_column));
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(e), _) => {
                    self.composite_star(e, env, &mut out)?;
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(Error::unsupported("several aliases of one expression"));
                }
            }
        }
        must_fit(out.len())?;
        Ok(out)
    }

    /// Keeps the columns that a `*` stands for, as text that may take its place. Behind `t.` the first goes without its
    /// qualifier.
    fn note_star(
        &mut self,
        o: &ast::WildcardAdditionalOptions,
        columns: &[ScopeColumn],
        qualifier: Option<&str>,
        scope: &Scope<'_>,
    ) {
        let Some(stars) = &mut self.stars else { return };
        let quote = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
        let mut text = String::new();
        for (i, c) in columns.iter().enumerate() {
            let same = |x: &ScopeColumn| x.name == c.name && x.expr.same(&c.expr);
            let owner = scope.rels.iter().find(|r| r.columns.iter().any(same));
            let before = match (qualifier, owner) {
                (Some(_), _) if i == 0 => String::new(),
                (Some(q), _) => format!("{q}."),
                (None, Some(r)) if !r.alias.is_empty() => format!("{}.", quote(&r.alias)),
                (None, _) => String::new(),
            };
            if i > 0 {
                text.push_str(", ");
            }
            text.push_str(&before);
            text.push_str(&quote(&c.name));
        }
        let at = o.wildcard_token.0.span.start;
        if !columns.is_empty() && !stars.iter().any(|(known, _)| *known == at) {
            stars.push((at, text));
        }
    }

    fn entry(&mut self, e: &Ast, name: Option<String>, env: &mut Env<'_, '_>) -> Result<Target> {
        let (bound, origin) = match strip(e) {
            Ast::Identifier(i)
                if i.quote_style.is_some()
                    || super::call::sql_value_function(&i.value.to_lowercase()).is_none() =>
            {
                self.bind_name(std::slice::from_ref(i), env.scope)?
            }
            Ast::CompoundIdentifier(parts) => self.bind_name(parts, env.scope)?,
            _ => (self.expr(e, env)?, (0, 0)),
        };
        Ok(Target {
            name: name.unwrap_or_else(|| column_name(e).unwrap_or("?column?".into())),
            bound,
            origin,
        })
    }

    /// Which entry an ORDER BY (or DISTINCT ON) item is: an output's name, a position, or an expression, which is added
    /// when the list has it not.
    pub(super) fn order_target(
        &mut self,
        e: &Ast,
        targets: &mut Vec<Target>,
        visible: usize,
        env: &mut Env<'_, '_>,
    ) -> Result<usize> {
        if let Some(i) = ordinal(e, visible, env.clause)? {
            return Ok(i);
        }
        if let Ast::Identifier(i) = e {
            let name = fold(i);
            let mut hits = (0..visible).filter(|&t| targets[t].name == name);
            if let Some(first) = hits.next() {
                if hits.any(|o| !targets[o].bound.expr.same(&targets[first].bound.expr)) {
                    return Err(Error::new(
                        SqlState::AMBIGUOUS_COLUMN,
                        format!("{} \"{name}\" is ambiguous", env.clause),
                    ));
                }
                return Ok(first);
            }
        }
        let b = self.expr(e, env)?;
        let b = self.settle(b)?;
        if let Some(i) = targets.iter().position(|t| t.bound.expr.same(&b.expr)) {
            return Ok(i);
        }
        targets.push(Target {
            name: String::new(),
            bound: b,
            origin: (0, 0),
        });
        Ok(targets.len() - 1)
    }

    /// Puts every entry in a slot: a column of the query's own relations stays where it is, anything else is computed. A column
    /// of an outer query is computed, too: were its slot an output, the query would seem to write it, and an outer join or a
    /// buffer of rows would.
    pub(crate) fn project(
        &mut self,
        input: Logical,
        targets: Vec<Target>,
        own: &dyn Fn(Slot) -> bool,
    ) -> (Logical, Vec<QCol>) {
        let mut exprs: Vec<(Slot, Expr)> = Vec::new();
        let mut cols = Vec::with_capacity(targets.len());
        for t in targets {
            let slot = match t.bound.expr {
                Expr::Slot(s) if own(s) => s,
                e => {
                    let s = self.slot(String::new());
                    self.used[s as usize] = true;
                    self.shaped(s, &e);
                    if let Some(shape) = super::json_rows::shape(&e, &self.records) {
                        self.records.push((s, Arc::new(shape)));
                    }
                    exprs.push((s, e));
                    s
                }
            };
            cols.push(QCol {
                name: t.name,
                slot,
                ty: t.bound.ty,
                origin: t.origin,
            });
        }
        let node = if exprs.is_empty() {
            input
        } else {
            Logical::Project {
                input: Box::new(input),
                exprs,
            }
        };
        (node, cols)
    }
}

fn plain_star(o: &ast::WildcardAdditionalOptions) -> Result<()> {
    let plain = o.opt_ilike.is_none()
        && o.opt_exclude.is_none()
        && o.opt_except.is_none()
        && o.opt_replace.is_none()
        && o.opt_rename.is_none()
        && o.opt_alias.is_none();
    if plain {
        Ok(())
    } else {
        Err(Error::unsupported("an option of *"))
    }
}

fn of_column(c: super::scope::ScopeColumn) -> Target {
    Target {
        name: c.name,
        bound: Bound {
            expr: c.expr,
            ty: c.ty,
        },
        origin: c.origin,
    }
}

fn strip(mut e: &Ast) -> &Ast {
    while let Ast::Nested(inner) = e {
        e = inner;
    }
    e
}

/// Whether an expression's own name is stronger than the type that it is cast to: not for literals, CASE and casts of them.
fn names_itself(e: &Ast) -> bool {
    match e {
        Ast::Nested(e) | Ast::Cast { expr: e, .. } => names_itself(e),
        Ast::Case { else_result, .. } => else_result.as_deref().is_some_and(names_itself),
        Ast::Value(_) | Ast::TypedString(_) | Ast::Interval(_) => false,
        e => column_name(e).is_some(),
    }
}

/// The name that PostgreSQL gives an output without an alias (`FigureColname`).
pub(crate) fn column_name(e: &Ast) -> Option<String> {
    Some(match e {
        Ast::Identifier(i) => fold(i),
        Ast::CompoundIdentifier(parts) => fold(parts.last()?),
        Ast::Nested(e) | Ast::Collate { expr: e, .. } => return column_name(e),
        Ast::CompoundFieldAccess { root, access_chain } => {
            let field = |a: &ast::AccessExpr| match a {
                ast::AccessExpr::Dot(Ast::Identifier(i)) => Some(fold(i)),
                _ => None,
            };
            return access_chain
                .iter()
                .rev()
                .find_map(field)
                .or_else(|| column_name(root));
        }
        Ast::Function(f) => fold(f.name.0.last()?.as_ident()?),
        Ast::Cast {
            expr, data_type, ..
        } => {
            if names_itself(expr) {
                return column_name(expr);
            }
            let text = data_type.to_string();
            let Ok(ty) = crate::ddl::type_from_text(&text).map(|t| t.ty) else {
                return crate::catalog::user_types::last_part(&text);
            };
            match ty.element() {
                Some(e) => e.typname().to_owned(),
                None => ty.typname().to_owned(),
            }
        }
        Ast::TypedString(t) => {
            let text = t.data_type.to_string();
            match crate::ddl::type_from_text(&text) {
                Ok(t) => t.ty.typname().to_owned(),
                Err(_) => return crate::catalog::user_types::last_part(&text),
            }
        }
        Ast::Interval(_) => "interval".into(),
        Ast::Case { else_result, .. } => {
            return match else_result.as_deref().and_then(column_name) {
                Some(n) if !matches!(else_result.as_deref(), Some(Ast::Value(_))) => Some(n),
                _ => Some("case".into()),
            };
        }
        Ast::Exists { negated: false, .. } => "exists".into(),
        Ast::Array(_) => "array".into(),
        Ast::Tuple(_) => "row".into(),
        Ast::Extract { .. } => "extract".into(),
        Ast::Substring { shorthand, .. } => match shorthand {
            true => "substr".into(),
            false => "substring".into(),
        },
        Ast::BinaryOp { op, .. } if op.to_string() == "OVERLAPS" => "overlaps".into(),
        Ast::Position { .. } => "position".into(),
        Ast::Overlay { .. } => "overlay".into(),
        Ast::AtTimeZone { .. } => "timezone".into(),
        Ast::Ceil { .. } => "ceil".into(),
        Ast::Floor { .. } => "floor".into(),
        Ast::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim".into(),
            Some(ast::TrimWhereField::Trailing) => "rtrim".into(),
            _ => "btrim".into(),
        },
        Ast::Value(v) => match v.value {
            ast::Value::Boolean(_) => "bool".into(),
            _ => return None,
        },
        Ast::Subquery(q) => return query_name(&q.body),
        _ => return None,
    })
}

/// The name of a query's first column.
fn query_name(body: &ast::SetExpr) -> Option<String> {
    match body {
        ast::SetExpr::Select(s) => match (s.projection.first()?, &s.from[..]) {
            (SelectItem::UnnamedExpr(e), _) => column_name(e),
            (SelectItem::ExprWithAlias { alias, .. }, _) => Some(fold(alias)),
            (SelectItem::Wildcard(_), [from]) => match &from.relation {
                ast::TableFactor::Derived { subquery, .. } => query_name(&subquery.body),
                _ => None,
            },
            _ => None,
        },
        ast::SetExpr::SetOperation { left, .. } => query_name(left),
        ast::SetExpr::Query(q) => query_name(&q.body),
        _ => None,
    }
}
