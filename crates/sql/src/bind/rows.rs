//! Functions in FROM: sets, records, plain values as one row, several arrays side by side.

use super::expr::Env;
use super::from::{Names, rename};
use super::scope::{ScopeColumn, ScopeRel};
use super::{Binder, Bound, Scope};
use crate::catalog::{fold, split_name};
use crate::expr::{Expr, Slot};
use crate::functions::{Kind, Resolved, Volatility, WindowFn};
use crate::logical::window::{Frame, Over, Window, WindowCall};
use crate::logical::{From, Function, Logical};
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableAlias};
use std::sync::Arc;

/// What the fields of the record in a slot are.
pub(super) type Shape = Arc<[(String, Type)]>;

/// The rows with their numbers in this slot.
fn numbered(input: Logical, slots: Vec<Slot>, slot: Slot) -> Logical {
    let call = WindowCall {
        slot,
        name: "row_number",
        over: Over::Function(WindowFn::RowNumber),
        args: vec![],
        types: vec![],
        filter: None,
        frame: Frame::running(),
    };
    Logical::Window {
        input: Box::new(input),
        window: Window {
            partition: vec![],
            order: vec![],
        },
        calls: vec![call],
        slots,
    }
}

impl Binder<'_> {
    /// The shape of a record, where it is known: of a function's row, also behind a subquery.
    fn shape(&self, e: &Expr) -> Option<Shape> {
        match e {
            Expr::Slot(s) => {
                let found = self.shapes.iter().find(|(slot, _)| slot == s);
                found.map(|(_, shape)| shape.clone())
            }
            _ => None,
        }
    }

    /// A record's shape is known in this slot, too.
    pub(super) fn shaped(&mut self, slot: Slot, e: &Expr) {
        if let Some(shape) = self.shape(e) {
            self.shapes.push((slot, shape));
        }
    }

    /// `(row).name`. 42703.
    pub(super) fn field(
        &mut self,
        root: &ast::Expr,
        b: Bound,
        name: &str,
        scope: &Scope<'_>,
    ) -> Result<Bound> {
        let missing = || {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" not found in data type record"),
            )
        };
        if let Some(items) = super::json_rows::fields(&b) {
            let Some(names) = self.field_names(root, scope) else {
                return Err(Error::unsupported("a field of this row"));
            };
            let named = |i: usize| match names.get(i) {
                Some(n) => n == name,
                None => format!("f{}", i + 1) == name,
            };
            let at = (0..items.len()).find(|i| named(*i)).ok_or_else(missing)?;
            let (e, ty) = items[at].clone();
            return Ok(Bound::new(e, ty));
        }
        let Some(shape) = self.shape(&b.expr) else {
            return Err(Error::unsupported("a field of this row"));
        };
        let at = shape.iter().position(|(n, _)| n == name);
        let at = at.ok_or_else(missing)?;
        let number = Expr::Const(base::Value::Int4(at as i32));
        let text = self.call("record field", vec![b, Bound::new(number, Type::Int4)])?;
        self.explicit_cast(text, shape[at].1.into())
    }

    /// A function in FROM: what it is, and its arguments.
    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        args: &[FunctionArg],
        scope: &Scope<'_>,
    ) -> Result<(Resolved, Vec<Expr>, String)> {
        let (_, name) = split_name(name)?;
        let mut env = Env::plain(scope, "functions in FROM");
        let mut bound = Vec::new();
        for a in args {
            match a {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => {
                    bound.push(self.expr(e, &mut env)?)
                }
                _ => return Err(Error::unsupported("an argument by name")),
            }
        }
        bound.retain(|b| !super::call::is_no_argument(b));
        let types: Vec<Type> = bound.iter().map(|b| b.ty.ty).collect();
        let f = self.function_named(&name, &types)?;
        if let Kind::Aggregate(_) = f.kind {
            return Err(Error::new(
                SqlState::GROUPING_ERROR,
                "aggregate functions are not allowed in functions in FROM",
            ));
        }
        if let Kind::Window(_) = f.kind {
            return Err(super::window::needs_over(&name));
        }
        self.volatile += usize::from(f.volatility == Volatility::Volatile);
        let exprs = self.arguments(&f, bound)?;
        Ok((f, exprs, name))
    }

    /// `unnest(a, b)`: several arrays side by side, the shorter ones filled up with NULL.
    pub(super) fn unnest_together(
        &mut self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        visible: &Scope<'_>,
    ) -> Result<(From, Names)> {
        self.relations += 1;
        let shown = alias.map_or("unnest".to_owned(), |a| fold(&a.name));
        let mut functions = Vec::new();
        let mut columns = Vec::new();
        let mut deps = Vec::new();
        for a in args {
            let (f, exprs, _) = self.table_function(name, std::slice::from_ref(a), visible)?;
            let s = self.slot(format!("{shown}.unnest"));
            self.used[s as usize] = true;
            exprs.iter().for_each(|e| e.slots(&mut |s| deps.push(s)));
            columns.push(ScopeColumn {
                name: "unnest".into(),
                expr: Expr::Slot(s),
                ty: ColumnType::plain(f.ret),
                origin: (0, 0),
            });
            functions.push((s, f, exprs));
        }
        let mut slots: Vec<Slot> = functions.iter().map(|(s, ..)| *s).collect();
        let mut node = Logical::ProjectSet {
            input: Box::new(Logical::once()),
            functions,
        };
        if ordinality {
            let s = self.slot(format!("{shown}.ordinality"));
            columns.push(ScopeColumn {
                name: "ordinality".into(),
                expr: Expr::Slot(s),
                ty: ColumnType::plain(Type::Int8),
                origin: (0, 0),
            });
            node = numbered(node, slots.clone(), s);
            slots.push(s);
        }
        let rel = ScopeRel {
            alias: shown,
            schema: None,
            columns,
            system: None,
        };
        let item = From::Rel {
            rel: Box::new(node),
            slots,
            deps,
        };
        Ok((item, Names::one(rename(rel, alias)?)))
    }

    pub(super) fn function_in_from(
        &mut self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        visible: &Scope<'_>,
    ) -> Result<(From, Names)> {
        let (schema, called) = split_name(name)?;
        if schema.is_none_or(|s| s == "pg_catalog")
            && let Some((query, alias)) =
                super::json_records::rewritten(&called, args, ordinality, alias)?
        {
            let boundary = Scope::boundary(visible);
            let selected = self.query_or_flat(&query, &boundary, None)?;
            let crossed = boundary.take_crossed();
            return self.derived(selected, Some(&alias), None, None, crossed, false);
        }
        let (f, args, plain) = self.table_function(name, args, visible)?;
        self.relations += 1;
        let shown = alias.map_or(plain.clone(), |a| fold(&a.name));
        let sets = matches!(f.kind, Kind::SetReturning(_));
        let mut cols: Vec<(String, Type)> = if sets && !f.columns.is_empty() {
            f.columns
                .iter()
                .map(|(n, t)| ((*n).to_owned(), *t))
                .collect()
        } else {
            // A single column is named like the relation, unless the function names it itself.
            let own = f.name.contains("array_elements");
            let column = if own {
                "value".to_owned()
            } else {
                shown.clone()
            };
            vec![(column, f.ret)]
        };
        if ordinality {
            cols.push(("ordinality".into(), Type::Int8));
        }
        let mut columns = Vec::new();
        let mut out = Vec::new();
        for (n, ty) in cols {
            let s = self.slot(format!("{shown}.{n}"));
            out.push(s);
            columns.push(ScopeColumn {
                name: n,
                expr: Expr::Slot(s),
                ty: ColumnType::plain(ty),
                origin: (0, 0),
            });
        }
        let ordinality = ordinality.then(|| out.pop().expect("the ordinality column"));
        if ordinality.is_none() && f.columns.is_empty() {
            self.scalars.push((out[0], shown.clone()));
        }
        let rel = ScopeRel {
            alias: shown.clone(),
            schema: None,
            columns,
            system: None,
        };
        let item = From::Function(Function {
            f,
            args,
            out,
            ordinality,
            alias: shown,
            filter: vec![],
        });
        Ok((item, Names::one(rename(rel, alias)?)))
    }
}
