//! Forms of expressions that PostgreSQL spells in more than one way, brought to the one that the parser knows.
//!
//! | said | becomes |
//! |---|---|
//! | `f(name := x)` | `f(name => x)` |
//! | `f(a, VARIADIC x)` | `f(a, variadic(x))`, which [`spread`] reads |
//! | `trim(LEADING FROM x)`, `trim(FROM x)` | `trim(LEADING ' ' FROM x)`, `trim(x)` |
//! | `substring(x SIMILAR p ESCAPE e)` | `substring(x, p, e)` |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN symmetric(a) AND b`, which [`symmetric`] reads |
//!
//! Both words are reserved, so no function has one of these names. PostgreSQL reads the new form, too: texts that the schema keeps have it.

use super::tokens::{solid, word_of};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

const WORDS: [&str; 4] = ["variadic", "trim", "similar", "symmetric"];

/// Rewrites them all.
pub(super) fn adapt(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for t in &mut tokens {
        if t.token == Token::Assignment {
            t.token = Token::RArrow;
        }
    }
    let said = |t: &TokenWithSpan| word_of(t).is_some_and(|w| WORDS.contains(&&*w));
    if !tokens.iter().any(said) {
        return tokens;
    }
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    // What stands at a place from now on; what is put in front of it.
    let mut other: Vec<(usize, Token)> = vec![];
    let mut more: Vec<(usize, Vec<Token>)> = vec![];
    for k in 0..solid.len() {
        let inside = matches!(
            k.checked_sub(1).and_then(token),
            Some(Token::LParen | Token::Comma)
        );
        if is(k, "variadic") && inside {
            let Some(end) = end_of(&tokens, &solid, k + 1, |_| false) else {
                continue;
            };
            more.push((solid[k + 1], vec![Token::LParen]));
            more.push((solid[end], vec![Token::RParen]));
        } else if is(k, "from")
            && k >= 3
            && is(k - 3, "trim")
            && token(k - 2) == Some(&Token::LParen)
            && ["leading", "trailing", "both"].iter().any(|w| is(k - 1, w))
        {
            more.push((solid[k], vec![Token::SingleQuotedString(" ".into())]));
        } else if is(k, "from")
            && k >= 2
            && is(k - 2, "trim")
            && token(k - 1) == Some(&Token::LParen)
        {
            other.push((solid[k], Token::Whitespace(Whitespace::Space)));
        } else if is(k, "substring") && token(k + 1) == Some(&Token::LParen) {
            let part = |from: usize, w: &str| {
                let found = end_of(&tokens, &solid, from, |t| word_of(t).as_deref() == Some(w));
                found.filter(|&at| is(at, w))
            };
            let similar = part(k + 2, "similar");
            let escape = similar.and_then(|at| part(at + 1, "escape"));
            if let (Some(similar), Some(escape)) = (similar, escape) {
                other.push((solid[similar], Token::Comma));
                other.push((solid[escape], Token::Comma));
            }
        } else if is(k, "symmetric") && k > 0 && is(k - 1, "between") {
            let and = |t: &TokenWithSpan| word_of(t).as_deref() == Some("and");
            let Some(end) = end_of(&tokens, &solid, k + 1, and).filter(|&at| is(at, "and")) else {
                continue;
            };
            more.push((solid[k + 1], vec![Token::LParen]));
            more.push((solid[end], vec![Token::RParen]));
        }
    }
    for (at, t) in other {
        tokens[at].token = t;
    }
    // From the end, so that what is ahead keeps its place; what closes stands before what opens there.
    more.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (at, new) in more {
        let span = tokens[at].span;
        tokens.splice(at..at, new.into_iter().map(|t| TokenWithSpan::new(t, span)));
    }
    tokens
}

/// The place, among the solid tokens from `from` on, of the first outside of parentheses that `ends` takes, or of the parenthesis that closes what is
/// around.
fn end_of(
    tokens: &[TokenWithSpan],
    solid: &[usize],
    from: usize,
    ends: impl Fn(&TokenWithSpan) -> bool,
) -> Option<usize> {
    let mut depth = 0;
    (from..solid.len()).find(|&k| {
        let t = &tokens[solid[k]];
        match t.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            _ => return depth == 0 && ends(t),
        }
        depth < 0
    })
}

/// The one argument of a call of this name.
fn called<'a>(e: &'a Expr, name: &str) -> Option<&'a Expr> {
    let Expr::Function(Function {
        name: found,
        args: FunctionArguments::List(list),
        ..
    }) = e
    else {
        return None;
    };
    let [part] = &found.0[..] else { return None };
    let word = part.as_ident()?;
    let is_named = word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name);
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] if is_named => Some(e),
        _ => None,
    }
}

/// The array of `VARIADIC array`.
pub(super) fn spread(e: &Expr) -> Option<&Expr> {
    called(e, "variadic")
}

/// The first bound of BETWEEN SYMMETRIC.
pub(super) fn symmetric(e: &Expr) -> Option<&Expr> {
    called(e, "symmetric")
}
