//! Window functions: the table. What they compute stands where rows are: the execution knows partitions, peers and frames.

use super::registry::{Registry, names::*};
use super::{Kind, Volatility};

/// A function that looks at the rows around the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFn {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
}

/// Adds every window function that is no aggregate.
pub(super) fn register(r: &mut Registry) {
    use WindowFn::*;
    let flags = (Volatility::Immutable, false);
    let mut add = |name, args: &[_], ret, f| r.add(name, args, ret, flags, Kind::Window(f));
    add("row_number", &[], INT8, RowNumber);
    add("rank", &[], INT8, Rank);
    add("dense_rank", &[], INT8, DenseRank);
    add("percent_rank", &[], FLOAT8, PercentRank);
    add("cume_dist", &[], FLOAT8, CumeDist);
    add("ntile", &[INT4], INT4, Ntile);
    for (name, f) in [("lag", Lag), ("lead", Lead)] {
        add(name, &[ANYELEMENT], ANYELEMENT, f);
        add(name, &[ANYELEMENT, INT4], ANYELEMENT, f);
        let three = [ANYCOMPATIBLE, INT4, ANYCOMPATIBLE];
        add(name, &three, ANYCOMPATIBLE, f);
    }
    add("first_value", &[ANYELEMENT], ANYELEMENT, FirstValue);
    add("last_value", &[ANYELEMENT], ANYELEMENT, LastValue);
    add("nth_value", &[ANYELEMENT, INT4], ANYELEMENT, NthValue);
}
