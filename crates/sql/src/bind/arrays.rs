//! ARRAY[…].

use super::expr::Env;
use super::{Binder, Bound};
use crate::expr::Expr;
use crate::types::cast::CastKind;
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::Expr as Ast;

impl Binder<'_> {
    /// An array constructor; `to` is the array type of a cast around it.
    pub(super) fn array(
        &mut self,
        items: &[Ast],
        to: Option<Type>,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let mut bound = Vec::with_capacity(items.len());
        for i in items {
            bound.push(match i {
                Ast::Array(a) => self.array(&a.elem, to, env)?,
                i => self.expr(i, env)?,
            });
        }
        if bound.is_empty() && to.is_none() {
            return Err(Error::new(
                SqlState::INDETERMINATE_DATATYPE,
                "cannot determine type of empty array",
            )
            .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let nested = bound.iter().any(|b| b.ty.ty.element().is_some());
        let (exprs, array) = match to {
            Some(array) => {
                let element = array.element().expect("an array type");
                let item: ColumnType = if nested { array } else { element }.into();
                let mut exprs = Vec::new();
                for b in bound {
                    exprs.push(self.cast_item(b, item)?);
                }
                (exprs, array)
            }
            None => {
                let (exprs, ty) = self.unify(bound, "ARRAY")?;
                let array = if nested {
                    Some(ty.ty)
                } else {
                    ty.ty.array_of()
                };
                let array = array.ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "could not find array type for data type {}",
                            crate::types::typename::format_type(ty.ty, -1)
                        ),
                    )
                })?;
                (exprs, array)
            }
        };
        let element = array.element().expect("an array type");
        let e = self.fold(Expr::Array {
            element,
            items: exprs,
            nested,
        });
        Ok(Bound::new(e, array))
    }

    fn cast_item(&mut self, b: Bound, to: ColumnType) -> Result<Expr> {
        let from = b.ty.ty;
        self.try_coerce(b, to, CastKind::Explicit)?.ok_or_else(|| {
            Error::new(
                SqlState::CANNOT_COERCE,
                format!(
                    "cannot cast type {} to {}",
                    crate::types::typename::format_type(from, -1),
                    crate::types::typename::format_type(to.ty, -1)
                ),
            )
        })
    }
}
