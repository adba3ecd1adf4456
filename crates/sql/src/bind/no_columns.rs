//! SELECT without a select list, which the parser reads before FROM alone: `SELECT`, `SELECT WHERE x`, `(SELECT) UNION SELECT`.
//!
//! The list becomes a name that no text from outside has. [`is_mark`] knows it, and no column comes of it.

use super::tokens::{Edit, MARK, edit, quoted};
use sqlparser::ast::{Expr, SelectItem};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// What stands behind an empty list, beside the end. PostgreSQL reserves these words, so they are no columns.
const BEHIND: [Keyword; 13] = [
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::INTO,
    Keyword::FETCH,
    Keyword::RETURNING,
];

/// The same of two words.
const BEHIND_BY_TWO: [(Keyword, Keyword); 5] = [
    (Keyword::FOR, Keyword::UPDATE),
    (Keyword::FOR, Keyword::SHARE),
    (Keyword::FOR, Keyword::NO),
    (Keyword::FOR, Keyword::KEY),
    (Keyword::ON, Keyword::CONFLICT),
];

/// The kind of the mark.
pub(super) const NONE: &str = "none";

/// A token's keyword, if it is one.
fn keyword(t: Option<&TokenWithSpan>) -> Keyword {
    match t.map(|t| &t.token) {
        Some(Token::Word(w)) => w.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Puts the mark where a list is empty.
pub(super) fn adapt(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let select = |i: &usize| keyword(tokens.get(*i)) == Keyword::SELECT;
    let empty = |i: usize| after_empty_list(&tokens, i).map(|at| (i, at));
    let found: Vec<(usize, usize)> = (0..tokens.len()).filter(select).filter_map(empty).collect();
    if found.is_empty() {
        return tokens;
    }
    let is_solid = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let starts = keyword(tokens.iter().find(is_solid));
    // In these it is a right.
    if [Keyword::GRANT, Keyword::REVOKE, Keyword::ALTER].contains(&starts) {
        return tokens;
    }
    // The query of these stands behind AS.
    let makes = [Keyword::CREATE, Keyword::PREPARE].contains(&starts);
    let first = (0..tokens.len()).find(select);
    let is_name = |i: usize| match tokens[..i].iter().rfind(is_solid) {
        // `t.select`
        Some(t) if t.token == Token::Period => true,
        // `1 AS select`
        t => keyword(t) == Keyword::AS && !(makes && first == Some(i)),
    };
    let edits = found.iter().filter(|(i, _)| !is_name(*i));
    let edits = edits.map(|&(i, at)| {
        let mark = quoted(format!("{MARK}{NONE}{MARK}"));
        Edit {
            from: at,
            to: at,
            with: vec![TokenWithSpan::new(mark, tokens[i].span)],
        }
    });
    let edits = edits.collect();
    edit(tokens, edits)
}

/// Where the list of the SELECT in this place ends, if nothing stands in it.
fn after_empty_list(tokens: &[TokenWithSpan], select: usize) -> Option<usize> {
    let is_blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_));
    let next = |from: usize| (from..tokens.len()).find(|&i| !is_blank(&tokens[i]));
    let mut at = select;
    let mut behind = next(at + 1);
    if let Some(i) = behind.filter(|&i| keyword(tokens.get(i)) == Keyword::ALL) {
        at = i;
        behind = next(i + 1);
    }
    let ends = match behind {
        None => true,
        Some(i) => match &tokens[i].token {
            Token::RParen | Token::EOF | Token::SemiColon => true,
            Token::Word(w) => {
                let second = || keyword(next(i + 1).and_then(|i| tokens.get(i)));
                let two = |(a, b): &(Keyword, Keyword)| *a == w.keyword && *b == second();
                BEHIND.contains(&w.keyword) || BEHIND_BY_TWO.iter().any(two)
            }
            _ => false,
        },
    };
    ends.then_some(at + 1)
}

/// Whether this entry of a select list stands for an empty one.
pub(super) fn is_mark(item: &SelectItem) -> bool {
    let SelectItem::UnnamedExpr(Expr::Identifier(i)) = item else {
        return false;
    };
    let kind = i
        .value
        .strip_prefix(MARK)
        .and_then(|k| k.strip_suffix(MARK));
    kind == Some(NONE)
}
