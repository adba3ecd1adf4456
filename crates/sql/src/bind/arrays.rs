//! ARRAY[…], and assignment to an element, or to a part of `jsonb`.

use super::expr::Env;
use super::through::Writable;
use super::{Binder, Bound, Scope};
use crate::expr::Expr;
use crate::functions::{SET_ELEMENT, SET_MEMBER};
use crate::logical::write::ColumnSource;
use crate::types::cast::CastKind;
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{self, Expr as Ast};

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

    /// What a column is before this assignment to a part of it: what others of the statement made of it, or what the row has.
    pub(super) fn so_far(&mut self, to: &Writable, at: usize, out: &mut [ColumnSource]) -> Expr {
        if let ColumnSource::Expr(e) = std::mem::replace(&mut out[at], ColumnSource::Keep) {
            return e;
        }
        let slot = to.slot(at);
        self.used[slot as usize] = true;
        Expr::Slot(slot)
    }

    /// `SET a[i] = value`: the column's source is the array with this element. Several of them on one column follow one another.
    pub(super) fn assign_element(
        &mut self,
        to: &Writable,
        name: &ast::ObjectName,
        value: &Ast,
        scope: &Scope<'_>,
        out: &mut [ColumnSource],
    ) -> Result<()> {
        let (column, subscripts) = super::syntax::subscripts(name).expect("the caller looked");
        let plain = ast::ObjectName::from(vec![ast::Ident::with_quote('"', column)]);
        let at = self.assignable(to, &plain)?;
        let c = &to.table.def.columns[at];
        if c.ty().ty == Type::Jsonb && !c.generated {
            return self.assign_member(to, at, &subscripts, value, scope, out);
        }
        let Some(element) = c.ty().ty.element() else {
            let what = format!(
                "cannot subscript type {} because it does not support subscripting",
                crate::types::typename::format_type(c.ty().ty, -1)
            );
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
        };
        if c.generated {
            let what = format!("column \"{}\" can only be updated to DEFAULT", c.name);
            return Err(
                Error::new(SqlState::GENERATED_ALWAYS, what).detail(super::dml::of_itself(c))
            );
        }
        let array = self.so_far(to, at, out);
        let mut items = Vec::with_capacity(subscripts.len());
        for s in &subscripts {
            let b = self.expr(s, &mut Env::plain(scope, "UPDATE"))?;
            let item = self.try_coerce(b, Type::Int4.into(), CastKind::Assignment)?;
            items.push(item.ok_or_else(|| {
                let what = "array subscript must have type integer";
                Error::new(SqlState::DATATYPE_MISMATCH, what)
            })?);
        }
        let subscripts = Expr::Array {
            element: Type::Int4,
            items,
            nested: false,
        };
        let b = self.expr(value, &mut Env::plain(scope, "UPDATE"))?;
        let to = ColumnType {
            ty: element,
            typmod: c.ty().typmod,
        };
        let value = self.assign(b, &c.name, to)?;
        let args = vec![
            Bound::new(array, c.ty().ty),
            Bound::new(subscripts, Type::Int4Array),
            Bound::new(value, element),
        ];
        let whole = self.call(SET_ELEMENT, args)?;
        out[at] = ColumnSource::Expr(whole.expr);
        Ok(())
    }

    /// `SET j['a'] = value`, of `jsonb`.
    fn assign_member(
        &mut self,
        to: &Writable,
        at: usize,
        subscripts: &[Ast],
        value: &Ast,
        scope: &Scope<'_>,
        out: &mut [ColumnSource],
    ) -> Result<()> {
        let whole = self.so_far(to, at, out);
        let mut items = Vec::with_capacity(subscripts.len());
        let mut is_number = false;
        for (i, s) in subscripts.iter().enumerate() {
            let b = self.expr(s, &mut Env::plain(scope, "UPDATE"))?;
            is_number |= i == 0 && b.ty.ty == Type::Int4;
            items.push(match b.ty.ty {
                Type::Int4 => self.explicit_cast(b, Type::Text.into())?.expr,
                Type::Text | Type::Unknown => self.coerce(b, Type::Text)?,
                other => {
                    let ty = crate::types::typename::format_type(other, -1);
                    let what = format!("subscript type {ty} is not supported");
                    let hint = "jsonb subscript must be coercible to either integer or text.";
                    return Err(Error::new(SqlState::DATATYPE_MISMATCH, what).hint(hint));
                }
            });
        }
        let path = Expr::Array {
            element: Type::Text,
            items,
            nested: false,
        };
        let b = self.expr(value, &mut Env::plain(scope, "UPDATE"))?;
        let name = &to.table.def.columns[at].name;
        let value = self.assign(b, name, Type::Jsonb.into())?;
        let args = vec![
            Bound::new(whole, Type::Jsonb),
            Bound::new(path, Type::TextArray),
            Bound::new(value, Type::Jsonb),
            Bound::new(Expr::Const(base::Value::Bool(is_number)), Type::Bool),
        ];
        let whole = self.call(SET_MEMBER, args)?;
        out[at] = ColumnSource::Expr(whole.expr);
        Ok(())
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
