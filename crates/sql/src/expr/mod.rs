//! Compiled expressions: what the binder makes of SQL, and what runs.
//!
//! A statement has one array of *slots*, numbered once for the whole statement, subqueries included: every column of
//! every relation in it, every aggregate, every computed output has its own. Operators write the slots that they
//! produce and expressions read them; no row is copied from one operator to the next, a join is the fact that both
//! sides have written their slots, and a correlated subquery reads the outer query's slots where they stand.
//!
//! Types are settled when an expression is built: nodes hold what evaluation needs of them. Comparison has its own
//! node, because plans are made of comparisons.
//!
//! Left out on purpose: a stack machine (the tree is shallow and the leaves are read by reference), row values as
//! first-class values.

pub mod fold;
pub mod show;
pub mod walk;

use crate::functions::Resolved;
use base::{ColumnType, Type, Value};

/// Number of a slot.
pub type Slot = u32;

/// A comparison operator over two values of one type (or two integer or float widths).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CmpOp {
    /// The operator of this symbol.
    pub fn from_symbol(s: &str) -> Option<CmpOp> {
        Some(match s {
            "=" => CmpOp::Eq,
            "<>" => CmpOp::Ne,
            "<" => CmpOp::Lt,
            "<=" => CmpOp::Le,
            ">" => CmpOp::Gt,
            ">=" => CmpOp::Ge,
            _ => return None,
        })
    }

    /// The symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            CmpOp::Eq => "=",
            CmpOp::Ne => "<>",
            CmpOp::Lt => "<",
            CmpOp::Le => "<=",
            CmpOp::Gt => ">",
            CmpOp::Ge => ">=",
        }
    }

    /// `a op b` is `b op.swap() a`.
    pub fn swap(self) -> CmpOp {
        match self {
            CmpOp::Lt => CmpOp::Gt,
            CmpOp::Le => CmpOp::Ge,
            CmpOp::Gt => CmpOp::Lt,
            CmpOp::Ge => CmpOp::Le,
            o => o,
        }
    }

    /// `NOT (a op b)` is `a op.negate() b`.
    pub fn negate(self) -> CmpOp {
        match self {
            CmpOp::Eq => CmpOp::Ne,
            CmpOp::Ne => CmpOp::Eq,
            CmpOp::Lt => CmpOp::Ge,
            CmpOp::Le => CmpOp::Gt,
            CmpOp::Gt => CmpOp::Le,
            CmpOp::Ge => CmpOp::Lt,
        }
    }

    /// Whether values that compare so satisfy the operator.
    #[inline]
    pub fn holds(self, o: std::cmp::Ordering) -> bool {
        match self {
            CmpOp::Eq => o.is_eq(),
            CmpOp::Ne => o.is_ne(),
            CmpOp::Lt => o.is_lt(),
            CmpOp::Le => o.is_le(),
            CmpOp::Gt => o.is_gt(),
            CmpOp::Ge => o.is_ge(),
        }
    }
}

/// An expression over slots, parameters and constants.
#[derive(Clone, Debug)]
pub enum Expr {
    Const(Value),
    /// Parameter, zero-based.
    Param(u32),
    Slot(Slot),
    /// An expression without columns, computed once per execution and kept in the slot.
    Once(Slot, Box<Expr>),
    /// A function or operator call; `op` holds the operator's symbol.
    Call(Box<Call>),
    Compare(CmpOp, Box<(Expr, Expr)>),
    /// IS DISTINCT FROM, or (`not`) IS NOT DISTINCT FROM.
    Distinct {
        not: bool,
        args: Box<(Expr, Expr)>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    /// IS NULL, or (`not`) IS NOT NULL.
    IsNull {
        arg: Box<Expr>,
        not: bool,
    },
    /// IS [NOT] TRUE, FALSE, UNKNOWN (`None`).
    IsBool {
        arg: Box<Expr>,
        value: Option<bool>,
        not: bool,
    },
    Case {
        whens: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    /// Computes `value` into the slot, then `body` (the operand of CASE).
    Let {
        slot: Slot,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    /// NULL when the condition `args.1` holds, else `args.0`.
    NullIf(Box<(Expr, Expr)>),
    /// GREATEST, or (`least`) LEAST, over one type.
    Extreme {
        least: bool,
        items: Vec<Expr>,
    },
    Cast(Box<Cast>),
    /// `arg = item` for some item, all of one comparable type; constants stand sorted in `sorted`.
    InList(Box<InList>),
    /// `left op ANY|ALL (array)`.
    AnyAll(Box<AnyAll>),
    /// ARRAY[…]; items that are arrays themselves make one more dimension.
    Array {
        element: Type,
        items: Vec<Expr>,
        nested: bool,
    },
    Subscript {
        array: Box<Expr>,
        indexes: Vec<Expr>,
    },
    /// `array[lo:hi]`.
    Slice {
        array: Box<Expr>,
        lower: Option<Box<Expr>>,
        upper: Option<Box<Expr>>,
    },
    /// A subquery used as a value.
    Subquery(Box<Subquery>),
    /// A row shown as text, `(1,2)`: whole-row references and ROW(…) in an output.
    Record(Vec<(Expr, Type)>),
}

#[derive(Clone, Debug)]
pub struct Call {
    pub f: Resolved,
    pub args: Vec<Expr>,
    pub op: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Cast {
    pub arg: Expr,
    pub from: ColumnType,
    pub to: ColumnType,
    /// Written with CAST or `::`, as opposed to storing into a column.
    pub explicit: bool,
}

#[derive(Clone, Debug)]
pub struct InList {
    pub arg: Expr,
    pub items: Vec<Expr>,
    pub negated: bool,
}

/// What compares the two sides of ANY and ALL.
#[derive(Clone, Debug)]
pub enum Matcher {
    Compare(CmpOp),
    Call(Resolved, String),
}

#[derive(Clone, Debug)]
pub struct AnyAll {
    pub left: Expr,
    pub matcher: Matcher,
    pub array: Expr,
    pub all: bool,
}

/// Which value a subquery gives.
#[derive(Clone, Debug)]
pub enum SubqueryKind {
    Exists {
        negated: bool,
    },
    /// The only row's only column; NULL for no row; 21000 for two.
    Scalar,
    /// All rows as an array of this element type.
    Array(Type),
    /// `left op ANY|ALL (query)`, columns against columns; `IN` is `= ANY`, `NOT IN` is `<> ALL`.
    AnyAll {
        left: Vec<Expr>,
        /// One condition over the slots `lhs` and the query's outputs.
        lhs: Vec<Slot>,
        condition: Box<Expr>,
        all: bool,
        /// Whether the condition is plain equality of all columns, so that a hash table may serve.
        hashable: bool,
        /// The query must give one row at most: `(a, b) = (SELECT …)`, which is NULL for none.
        one: bool,
    },
}

/// A subquery expression: the plan stands in the statement's list of subplans.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// Place in the list of subplans.
    pub plan: usize,
    pub kind: SubqueryKind,
    /// Slots of the query's outputs.
    pub outputs: Vec<Slot>,
    /// Slots of enclosing queries that it reads; empty: it is run once per execution.
    pub outer: Vec<Slot>,
}

impl Expr {
    /// TRUE.
    pub const TRUE: Expr = Expr::Const(Value::Bool(true));
    /// NULL.
    pub const NULL: Expr = Expr::Const(Value::Null);

    /// Conjunction of these conditions.
    pub fn and(mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            0 => Expr::TRUE,
            1 => parts.pop().expect("one"),
            _ => Expr::And(parts),
        }
    }

    /// `a op b`.
    pub fn compare(op: CmpOp, a: Expr, b: Expr) -> Expr {
        Expr::Compare(op, Box::new((a, b)))
    }

    /// Splits a condition at its ANDs into `out`.
    pub fn conjuncts(self, out: &mut Vec<Expr>) {
        match self {
            Expr::And(parts) => parts.into_iter().for_each(|p| p.conjuncts(out)),
            Expr::Const(Value::Bool(true)) => {}
            e => out.push(e),
        }
    }
}
