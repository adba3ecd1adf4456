//! Rows as JSON: `to_jsonb(t)`, `json_agg(t)`, `row_to_json(ROW(1, 2))`.
//!
//! A row's value is its text, which has lost the names of its fields. So where a function that makes JSON gets a row of a
//! relation, or one that is written out, the binder makes the object of the fields here, before the function sees it.
//!
//! Left out on purpose (0A000): rows that come from elsewhere, such as a column of a subquery that is itself a row.

use super::{Binder, Bound, Scope};
use crate::catalog::fold;
use crate::expr::{Expr, Slot};
use crate::types::record::Shape;
use base::{Error, Result, SqlState, Type, Value};
use sqlparser::ast::Expr as Ast;
use std::sync::Arc;

/// The fields of a row that is seen to be one.
pub(super) fn fields(b: &Bound) -> Option<&[(Expr, Type)]> {
    match &b.expr {
        Expr::Record(items) if b.ty.ty == Type::Record => Some(items),
        // The row of a relation; any other CASE has more than one row, or a NULL of its own.
        Expr::Case { whens, otherwise } if b.ty.ty == Type::Record => {
            let ([(test, Expr::Const(Value::Null))], Expr::Record(items)) =
                (&whens[..], &**otherwise)
            else {
                return None;
            };
            test.same(&left_empty(items)).then_some(items)
        }
        _ => None,
    }
}

/// The types of the fields of a row, those of rows in it included.
pub(super) fn shape(e: &Expr, known: &[(Slot, Arc<Shape>)]) -> Option<Shape> {
    if let Expr::Slot(s) = e {
        let hit = known.iter().find(|(k, _)| k == s)?;
        return Some((*hit.1).clone());
    }
    let row = Bound::new(e.clone(), Type::Record);
    let items = fields(&row)?;
    let of = |(e, ty): &(Expr, Type)| {
        let inner = (*ty == Type::Record).then(|| shape(e, known)).flatten();
        (*ty, inner.map(Arc::new))
    };
    Some(Shape(items.iter().map(of).collect()))
}

/// Whether an outer join left the row of a relation empty, which makes it NULL.
pub(super) fn left_empty(items: &[(Expr, Type)]) -> Expr {
    let empty = items.iter().map(|(e, _)| Expr::IsNull {
        arg: Box::new(e.clone()),
        not: false,
    });
    Expr::and(empty.collect())
}

/// `row_to_json(row)`, whose argument is an object by now.
pub(super) fn row_to_json(args: Vec<Bound>) -> Result<Bound> {
    match <[Bound; 1]>::try_from(args) {
        Ok([b]) if b.ty.ty == Type::Record => Ok(Bound::new(b.expr, Type::Json)),
        Ok(_) => Err(Error::new(
            SqlState::UNDEFINED_FUNCTION,
            "function row_to_json is for one row",
        )),
        Err(_) => Err(Error::unsupported("row_to_json with line feeds")),
    }
}

impl Binder<'_> {
    /// An argument of a function: an object instead of a row where the function makes JSON. It stays a record by its type, so that
    /// the function can tell.
    pub(super) fn json_argument(
        &mut self,
        function: &str,
        e: &Ast,
        b: Bound,
        scope: &Scope<'_>,
    ) -> Result<Bound> {
        let make = match function {
            "to_jsonb" | "jsonb_agg" | "jsonb_build_array" | "jsonb_build_object"
            | "jsonb_object_agg" => "jsonb_build_object",
            "to_json" | "json_agg" | "json_build_array" | "json_build_object"
            | "json_object_agg" | "row_to_json" => "row_to_json",
            _ => return Ok(b),
        };
        if function == "row_to_json" && b.ty.ty.composite().is_some() {
            let object = self.call("to_json", vec![b])?.expr;
            return Ok(Bound::new(object, Type::Record));
        }
        if b.ty.ty != Type::Record {
            return Ok(b);
        }
        let names = self.field_names(e, scope);
        let (Some(names), Some(fields)) = (names, fields(&b)) else {
            return Err(Error::unsupported("this row as JSON"));
        };
        let mut args = Vec::with_capacity(2 * fields.len());
        for (i, (e, ty)) in fields.iter().enumerate() {
            if *ty == Type::Record {
                return Err(Error::unsupported("a row in a row as JSON"));
            }
            let name = names.get(i).cloned().unwrap_or(format!("f{}", i + 1));
            args.push(Bound::new(Expr::Const(Value::from(name)), Type::Text));
            args.push(self.settle(Bound::new(e.clone(), *ty))?);
        }
        let object = self.call(make, args)?.expr;
        let expr = match b.expr {
            Expr::Case { whens, .. } => Expr::Case {
                whens,
                otherwise: Box::new(object),
            },
            _ => object,
        };
        Ok(Bound::new(expr, Type::Record))
    }

    /// What the fields of a row are called; those of one that is written out are f1, f2, and so on.
    pub(super) fn field_names(&self, e: &Ast, scope: &Scope<'_>) -> Option<Vec<String>> {
        let (schema, alias) = match e {
            Ast::Nested(e) => return self.field_names(e, scope),
            Ast::Identifier(t) => (None, fold(t)),
            Ast::CompoundIdentifier(parts) => match &parts[..] {
                [s, t] => (Some(fold(s)), fold(t)),
                _ => return None,
            },
            _ => return self.row_items(e).map(|_| vec![]),
        };
        let (rel, _) = self.find_rel(schema.as_deref(), &alias, scope)?;
        Some(rel.columns.iter().map(|c| c.name.clone()).collect())
    }
}
