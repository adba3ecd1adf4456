//! Making an expression be of a type: literals and parameters of unknown type, implicit and explicit casts, common types.

use super::{Binder, Bound};
use crate::expr::fold::fold;
use crate::expr::{Cast, Expr};
use crate::functions::select_common_type;
use crate::types::cast::{self, CastKind};
use crate::types::text;
use crate::types::typename::format_type;
use base::{ColumnType, Error, Result, SqlState, Type, Value};

/// Whether values of the one type are values of the other as they stand.
fn same_representation(from: Type, to: Type) -> bool {
    use Type::{Bpchar, Int2Vector, Name, Oid, RegClass, RegNamespace, RegProc, RegType};
    let text = |t| matches!(t, Type::Text | Type::Varchar);
    let oid = |t| matches!(t, Oid | RegClass | RegType | RegProc | RegNamespace);
    from == to
        || text(to) && (text(from) || matches!(from, Bpchar | Name | Type::PgNodeTree))
        || oid(from) && oid(to)
        || from == Int2Vector && to == Type::Int2Array
        || from == Type::OidVector && to == Type::OidArray
        || matches!(
            (from, to),
            (Type::VarcharArray | Type::NameArray, Type::TextArray)
                | (Type::TextArray, Type::VarcharArray)
        )
}

/// Whether the text of its values is a name in the schema. (Types and functions are the same in every schema.)
pub(super) fn names_relations(ty: Type) -> bool {
    let of = ty.element().unwrap_or(ty);
    matches!(of, Type::RegClass | Type::RegNamespace)
}

impl Binder<'_> {
    /// Folds a freshly made node.
    pub fn fold(&self, e: Expr) -> Expr {
        fold(e, self.cx.settings)
    }

    /// Converts `b` to `to`, if the context allows it; the error is the caller's to name otherwise.
    pub fn try_coerce(
        &mut self,
        b: Bound,
        to: ColumnType,
        context: CastKind,
    ) -> Result<Option<Expr>> {
        let explicit = context == CastKind::Explicit;
        let mut from = b.ty;
        if let (Some(ty), Some(items)) = (to.ty.composite(), super::json_rows::fields(&b)) {
            return self.row_as(items.to_vec(), ty, context).map(Some);
        }
        if names_relations(from.ty) || names_relations(to.ty) {
            // The names of a stored default were looked up when it was made.
            match self.stored {
                true => self.by_definitions = true,
                false => self.looks_up = true,
            }
        }
        if from.ty == Type::Unknown {
            match &b.expr {
                Expr::Param(i) => {
                    let settled = self.settle_param(*i, to.ty);
                    from = settled.into();
                }
                Expr::Const(Value::Null) => return Ok(Some(Expr::NULL)),
                Expr::Const(Value::Text(s)) if to.ty == Type::RegClass => {
                    return self.relation_number(s).map(Some);
                }
                Expr::Const(Value::Text(s)) => {
                    let literal = Expr::Cast(Box::new(Cast {
                        arg: Expr::Const(Value::Text(s.clone())),
                        from: Type::Unknown.into(),
                        to,
                        explicit,
                    }));
                    return match self.fold(literal) {
                        Expr::Cast(c)
                            if crate::expr::fold::cast_volatility(Type::Text, to.ty)
                                == crate::functions::Volatility::Immutable =>
                        {
                            // Folding failed: say why now, as PostgreSQL does. A value that its type reads but its modifier does not
                            // take is an error where it is computed: a DEFAULT may never be.
                            let v = Value::Text(s.clone());
                            let plain = ColumnType::plain(to.ty);
                            cast::apply(v, c.from, plain, explicit, self.cx.settings)?;
                            Ok(Some(Expr::Cast(c)))
                        }
                        Expr::Cast(c) => {
                            // Depends on the session; a bad literal is an error all the same.
                            if !matches!(
                                to.ty,
                                Type::RegClass | Type::RegProc | Type::RegType | Type::RegNamespace
                            ) {
                                text::input(s, to, self.cx.settings)?;
                            }
                            Ok(Some(Expr::Cast(c)))
                        }
                        e => Ok(Some(e)),
                    };
                }
                _ => from = Type::Text.into(),
            }
        }
        let modified = to.typmod >= 0 && to.typmod != from.typmod;
        if from.ty == to.ty && !modified {
            return Ok(Some(b.expr));
        }
        match cast::find(from.ty, to.ty) {
            Some(k) if k <= context => {}
            _ => return Ok(None),
        }
        if !modified && same_representation(from.ty, to.ty) {
            return Ok(Some(b.expr));
        }
        Ok(Some(self.fold(Expr::Cast(Box::new(Cast {
            arg: b.expr,
            from,
            to,
            explicit,
        })))))
    }

    /// What `'name'::regclass` means. A plan holds for one version of the schema and one search path, so the number may
    /// stand in it.
    fn relation_number(&mut self, text: &str) -> Result<Expr> {
        let t = text.trim();
        if t == "-" {
            return Ok(Expr::Const(Value::Oid(0)));
        }
        if let Ok(n) = t.parse::<u32>() {
            return Ok(Expr::Const(Value::Oid(n)));
        }
        let name = sqlparser::parser::Parser::new(&sqlparser::dialect::PostgreSqlDialect {})
            .try_with_sql(t)
            .and_then(|mut p| p.parse_object_name(false))
            .map_err(|_| Error::new(SqlState::INVALID_NAME, "invalid name syntax"))?;
        if let (Some(n), _) = crate::catalog::split_name(&name)? {
            self.name_schema(&n)?;
            if self.cx.catalog.schema.namespace_named(&n).is_none() {
                return Err(text::no_schema(&n));
            }
        }
        let found = crate::catalog::resolve(&self.cx.catalog.schema, &self.path, &name)?;
        self.found_in(found.namespace());
        Ok(Expr::Const(Value::Oid(found.oid())))
    }

    /// Implicit conversion of an operand; 42804.
    pub fn coerce(&mut self, b: Bound, to: Type) -> Result<Expr> {
        let from = b.ty.ty;
        // A polymorphic result may ask for the very type.
        let target = if from == to { b.ty } else { to.into() };
        self.try_coerce(b, target, CastKind::Implicit)?
            .ok_or_else(|| {
                Error::new(
                    SqlState::CANNOT_COERCE,
                    format!(
                        "cannot cast type {} to {}",
                        format_type(from, -1),
                        format_type(to, -1)
                    ),
                )
            })
    }

    /// CAST and `::`.
    pub fn explicit_cast(&mut self, b: Bound, to: ColumnType) -> Result<Bound> {
        let b = match to.ty {
            Type::Bytea => self.with_blanks(b)?,
            _ => b,
        };
        let from = b.ty.ty;
        match self.try_coerce(b, to, CastKind::Explicit)? {
            Some(expr) => Ok(Bound { expr, ty: to }),
            None => Err(Error::new(
                SqlState::CANNOT_COERCE,
                format!(
                    "cannot cast type {} to {}",
                    format_type(from, -1),
                    format_type(to.ty, -1)
                ),
            )),
        }
    }

    /// A value for a column; 42804 with PostgreSQL's words.
    pub fn assign(&mut self, b: Bound, column: &str, to: ColumnType) -> Result<Expr> {
        let from = b.ty.ty;
        self.try_coerce(b, to, CastKind::Assignment)?
            .ok_or_else(|| {
                Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "column \"{column}\" is of type {} but expression is of type {}",
                        format_type(to.ty, -1),
                        format_type(from, -1)
                    ),
                )
                .hint("You will need to rewrite or cast the expression.")
            })
    }

    /// A condition; 42804 when it is not boolean. `what`: `WHERE`, `HAVING` …
    pub fn condition(&mut self, b: Bound, what: &str) -> Result<Expr> {
        let from = b.ty.ty;
        if from != Type::Unknown && from != Type::Bool {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "argument of {what} must be type boolean, not type {}",
                    format_type(from, -1)
                ),
            ));
        }
        self.coerce(b, Type::Bool)
    }

    /// A row count of LIMIT or OFFSET, as bigint.
    pub fn row_count(&mut self, b: Bound, what: &str) -> Result<Expr> {
        let from = b.ty.ty;
        self.try_coerce(b, Type::Int8.into(), CastKind::Assignment)?
            .filter(|_| {
                matches!(
                    from,
                    Type::Unknown
                        | Type::Int2
                        | Type::Int4
                        | Type::Int8
                        | Type::Numeric
                        | Type::Float4
                        | Type::Float8
                )
            })
            .ok_or_else(|| {
                Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "argument of {what} must be type bigint, not type {}",
                        format_type(from, -1)
                    ),
                )
            })
    }

    /// The type that branches share; 42804 when there is none. `what`: `CASE`, `UNION` …
    pub fn common_type(&mut self, types: &[ColumnType], what: &str) -> Result<ColumnType> {
        if let Some((first, rest)) = types.split_first()
            && first.ty != Type::Unknown
            && rest.iter().all(|t| t == first)
        {
            return Ok(*first);
        }
        let plain: Vec<Type> = types.iter().map(|t| t.ty).collect();
        select_common_type(&plain)
            .map(ColumnType::plain)
            .ok_or_else(|| {
                let known: Vec<Type> = plain.into_iter().filter(|t| *t != Type::Unknown).collect();
                let first = known[0];
                let other = known
                    .iter()
                    .copied()
                    .find(|&t| select_common_type(&[first, t]).is_none())
                    .unwrap_or(first);
                Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "{what} types {} and {} cannot be matched",
                        format_type(first, -1),
                        format_type(other, -1)
                    ),
                )
            })
    }

    /// Branches converted to their common type.
    pub fn unify(&mut self, items: Vec<Bound>, what: &str) -> Result<(Vec<Expr>, ColumnType)> {
        let types: Vec<ColumnType> = items.iter().map(|b| b.ty).collect();
        let ty = self.common_type(&types, what)?;
        let items = items
            .into_iter()
            .map(|b| self.coerce_common(b, ty, what))
            .collect::<Result<_>>()?;
        Ok((items, ty))
    }

    /// One branch converted to the common type.
    pub fn coerce_common(&mut self, b: Bound, ty: ColumnType, what: &str) -> Result<Expr> {
        let from = b.ty.ty;
        let to = if b.ty.ty == ty.ty { b.ty } else { ty };
        self.try_coerce(b, to, CastKind::Implicit)?.ok_or_else(|| {
            Error::new(
                SqlState::CANNOT_COERCE,
                format!(
                    "{what} could not convert type {} to {}",
                    format_type(from, -1),
                    format_type(ty.ty, -1)
                ),
            )
        })
    }

    /// What an output of unknown type becomes: text.
    pub fn settle(&mut self, b: Bound) -> Result<Bound> {
        if b.ty.ty != Type::Unknown {
            return Ok(b);
        }
        let expr = self.coerce(b, Type::Text)?;
        Ok(Bound::new(expr, Type::Text))
    }
}
