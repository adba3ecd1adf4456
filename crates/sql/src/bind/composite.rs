//! Composite types in expressions: `ROW(…)::t`, `(c).f`, `(c).*`, `c IS NULL`, `SET c.f = …`.
//!
//! Left out on purpose: `INSERT INTO t (c.f)`, and a composite type's `*` in a view, since views keep their text.

use super::expr::Env;
use super::target::Target;
use super::through::Writable;
use super::{Binder, Bound, Scope};
use crate::catalog::fold;
use crate::expr::Expr;
use crate::functions::composite;
use crate::logical::write::ColumnSource;
use crate::types::cast::CastKind;
use crate::types::typename::format_type;
use base::schema::Column;
use base::user_type::Attribute;
use base::{ColumnType, Error, Result, SqlState, Type, UserType, Value};
use sqlparser::ast::{self, Expr as Ast};

fn number(at: usize) -> Expr {
    Expr::Const(Value::Int4(at as i32))
}

/// The attribute of this name, and its place. 42703.
fn attribute(ty: UserType, name: &str) -> Result<(usize, &'static Attribute)> {
    let found = ty.attributes().find(|(_, a)| a.name == name);
    found.ok_or_else(|| {
        let of = format_type(Type::User(ty), -1);
        let what = format!("column \"{name}\" not found in data type {of}");
        Error::new(SqlState::UNDEFINED_COLUMN, what)
    })
}

impl Binder<'_> {
    /// A row that is written out as a value of a composite type. 42846 for another number of fields.
    pub(super) fn row_as(
        &mut self,
        items: Vec<(Expr, Type)>,
        to: UserType,
        context: CastKind,
    ) -> Result<Expr> {
        let attributes = to.attributes();
        let refused = |detail: String| {
            let what = format!(
                "cannot cast type record to {}",
                format_type(Type::User(to), -1)
            );
            Err(Error::new(SqlState::CANNOT_COERCE, what).detail(detail))
        };
        if items.len() != attributes.len() {
            let few = items.len() < attributes.len();
            let many = if few { "few" } else { "many" };
            return refused(format!("Input has too {many} columns."));
        }
        let mut args = vec![Expr::NULL];
        for (i, ((expr, ty), (_, a))) in items.into_iter().zip(attributes).enumerate() {
            let Some(e) = self.try_coerce(Bound::new(expr, ty), a.ty, context)? else {
                return refused(format!(
                    "Cannot cast type {} to {} in column {}.",
                    format_type(ty, -1),
                    format_type(a.ty.ty, -1),
                    i + 1
                ));
            };
            args.push(e);
        }
        Ok(self.make_call(composite::make(to), args, None))
    }

    /// A written row beside a value of a composite type is of that type, too.
    pub(super) fn rows_alike(&mut self, l: Bound, r: Bound) -> Result<(Bound, Bound)> {
        Ok(match (l.ty.ty, r.ty.ty) {
            (Type::Record, Type::User(u)) if u.is_composite() => {
                let ty = r.ty;
                (
                    Bound {
                        expr: self.coerce(l, ty.ty)?,
                        ty,
                    },
                    r,
                )
            }
            (Type::User(u), Type::Record) if u.is_composite() => {
                let ty = l.ty;
                let expr = self.coerce(r, ty.ty)?;
                (l, Bound { expr, ty })
            }
            _ => (l, r),
        })
    }

    fn field_at(&mut self, e: Expr, ty: UserType, at: usize, a: &Attribute) -> Bound {
        let call = self.make_call(composite::field(ty, at), vec![e, number(at)], None);
        Bound {
            expr: call,
            ty: a.ty,
        }
    }

    /// `(x).name` of a composite value or a record. 42703; 42809 for other types.
    pub(super) fn any_field(
        &mut self,
        root: &Ast,
        b: Bound,
        name: &str,
        scope: &Scope<'_>,
    ) -> Result<Bound> {
        match b.ty.ty {
            Type::User(ty) if ty.is_composite() => {
                let (at, a) = attribute(ty, name)?;
                Ok(self.field_at(b.expr, ty, at, a))
            }
            Type::Record => self.field(root, b, name, scope),
            other => {
                let what = format!(
                    "column notation .{name} applied to type {}, which is not a composite type",
                    format_type(other, -1)
                );
                Err(Error::new(SqlState::WRONG_OBJECT_TYPE, what))
            }
        }
    }

    /// `(c).*`: an entry for each attribute.
    pub(super) fn composite_star(
        &mut self,
        e: &Ast,
        env: &mut Env<'_, '_>,
        out: &mut Vec<Target>,
    ) -> Result<()> {
        let b = self.expr(e, env)?;
        let Some(ty) = b.ty.ty.composite() else {
            return Err(Error::unsupported(format!("{e}.* of a record")));
        };
        if self.stars.is_some() {
            return Err(Error::unsupported(format!("{e}.* in a view")));
        }
        for (at, a) in ty.attributes() {
            out.push(Target {
                name: a.name.clone(),
                bound: self.field_at(b.expr.clone(), ty, at, a),
                origin: (0, 0),
            });
        }
        Ok(())
    }

    /// `c IS NULL`, `c IS NOT NULL`.
    pub(super) fn composite_null_test(&mut self, b: Bound, ty: UserType, not: bool) -> Expr {
        self.make_call(composite::null_test(ty, not), vec![b.expr], None)
    }

    /// The column that `SET c.f` begins with, and the names behind it.
    pub(super) fn field_target(
        to: &Writable,
        name: &ast::ObjectName,
    ) -> Result<Option<(usize, Vec<String>)>> {
        let part = |p: &ast::ObjectNamePart| p.as_ident().map(fold);
        let names: Option<Vec<String>> = name.0.iter().map(part).collect();
        let Some(mut names) = names.filter(|n| n.len() > 1) else {
            return Ok(None);
        };
        let at = to.find(&names.remove(0))?;
        Ok(at.map(|at| (at, names)))
    }

    /// `SET c.f = value`: the column's source is the value with this field. Several of them on one column follow one another.
    pub(super) fn assign_field(
        &mut self,
        to: &Writable,
        (at, names): (usize, Vec<String>),
        value: &Ast,
        scope: &Scope<'_>,
        out: &mut [ColumnSource],
    ) -> Result<()> {
        let c = &to.table.def.columns[at];
        if c.generated {
            let what = format!("column \"{}\" can only be updated to DEFAULT", c.name);
            return Err(
                Error::new(SqlState::GENERATED_ALWAYS, what).detail(super::dml::of_itself(c))
            );
        }
        let whole = self.so_far(to, at, out);
        let b = self.expr(value, &mut Env::plain(scope, "UPDATE"))?;
        let e = self.changed(c, whole, &names, b)?;
        out[at] = ColumnSource::Expr(e);
        Ok(())
    }

    /// `whole` with the field changed that the names lead to. `whole` stands in it once: a statement may change many fields of a column, and each
    /// change is over the one before.
    fn changed(&mut self, c: &Column, whole: Expr, names: &[String], value: Bound) -> Result<Expr> {
        let column = c.ty();
        let (mut to, mut path) = (column, vec![]);
        for name in names {
            let Some(of) = to.ty.composite() else {
                let what = format!(
                    "cannot assign to field \"{name}\" of column \"{}\" because its type {} is not a composite type",
                    c.name,
                    format_type(to.ty, -1)
                );
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
            };
            let found = of.attributes().find(|(_, a)| a.name == *name);
            let (at, a) = found.ok_or_else(|| {
                let what = format!(
                    "cannot assign to field \"{name}\" of column \"{}\" because there is no such column in data type {}",
                    c.name,
                    format_type(to.ty, -1)
                );
                Error::new(SqlState::UNDEFINED_COLUMN, what)
            })?;
            path.push(at);
            to = a.ty;
        }
        let last = names.last().expect("a field is named");
        let new = self.assign_to_field(value, last, to)?;
        let ty = column.ty.composite().expect("a field was found");
        let places = path.iter().map(|at| number(*at));
        let args = [whole].into_iter().chain(places).chain([new]).collect();
        Ok(self.make_call(composite::with_field(ty, &path), args, None))
    }

    fn assign_to_field(&mut self, b: Bound, name: &str, to: ColumnType) -> Result<Expr> {
        let from = b.ty.ty;
        let e = self.try_coerce(b, to, CastKind::Assignment)?;
        e.ok_or_else(|| {
            let what = format!(
                "subfield \"{name}\" is of type {} but expression is of type {}",
                format_type(to.ty, -1),
                format_type(from, -1)
            );
            Error::new(SqlState::DATATYPE_MISMATCH, what)
                .hint("You will need to rewrite or cast the expression.")
        })
    }
}
