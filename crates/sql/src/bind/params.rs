//! Parameters: `$n` takes the type that its first use with a type gives it.

use super::{Binder, Bound};
use crate::expr::Expr;
use base::{ColumnType, Error, Result, SqlState, Type};

/// Most parameters of a statement (the wire counts them in 16 bits).
const MAX_PARAMS: usize = 65_535;

impl Binder<'_> {
    /// The parameter written as `$n`.
    pub fn param(&mut self, text: &str) -> Result<Bound> {
        let n: usize = text
            .strip_prefix('$')
            .and_then(|d| d.parse().ok())
            .unwrap_or(0);
        if n == 0 || n > MAX_PARAMS || self.in_rule.is_some() {
            return Err(Error::new(
                SqlState::UNDEFINED_PARAMETER,
                format!("there is no parameter {text}"),
            ));
        }
        if self.params.len() < n {
            self.params.resize(n, None);
        }
        let ty = self.params[n - 1].unwrap_or(Type::Unknown);
        Ok(Bound::new(Expr::Param(n as u32 - 1), ty))
    }

    /// Settles a parameter's type, if it is not settled; its type now.
    pub fn settle_param(&mut self, i: u32, ty: Type) -> Type {
        *self.params[i as usize].get_or_insert(ty)
    }

    /// Types of all parameters; 42P18 when one has none.
    pub fn resolved_params(&self) -> Result<Vec<ColumnType>> {
        let of = |(i, t): (usize, &Option<Type>)| match t {
            Some(t) if *t != Type::Unknown => Ok(ColumnType::plain(*t)),
            _ => Err(Error::new(
                SqlState::INDETERMINATE_DATATYPE,
                format!("could not determine data type of parameter ${}", i + 1),
            )),
        };
        self.params.iter().enumerate().map(of).collect()
    }
}
