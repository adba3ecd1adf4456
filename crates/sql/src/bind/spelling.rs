//! Forms of expressions that PostgreSQL spells in more than one way, brought to the one that the parser knows.
//!
//! | said | becomes |
//! |---|---|
//! | `f(name := x)` | `f(name => x)` |
//! | `f(a, VARIADIC x)` | `f(a, variadic(x))`, which [`spread`] reads |
//! | `trim(LEADING FROM x)`, `trim(FROM x)` | `trim(LEADING ' ' FROM x)`, `trim(x)` |
//! | `substring(x SIMILAR p ESCAPE e)` | `substring(x, p, e)` |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN symmetric(a) AND b`, which [`symmetric`] reads |
//! | `RANGE '1 day'::interval PRECEDING` | `RANGE ('1 day'::interval) PRECEDING` |
//!
//! VARIADIC and SYMMETRIC are reserved, so no function has one of these names. PostgreSQL reads the new form, too: texts that the schema keeps have it.
//!
//! One pass finds them all, since a text may have as many as it has words.

use super::tokens::{Edit, closings, edit, solid, word_of};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use sqlparser::tokenizer::{Token, TokenWithSpan};

const WORDS: [&str; 6] = [
    "variadic",
    "trim",
    "similar",
    "symmetric",
    "preceding",
    "following",
];

/// Tokens of a literal with its cast that are looked at, before PRECEDING or FOLLOWING.
const CAST: usize = 8;

/// A parenthesis or bracket that is open, or the whole text: what has begun in it and goes on. Places are those of `solid`.
#[derive(Default)]
struct Open {
    is_substring: bool,
    similar: Option<usize>,
    has_escape: bool,
    /// Where what VARIADIC takes begins: it goes on to the closing parenthesis.
    variadic: Vec<usize>,
    /// Where what SYMMETRIC takes begins: it goes on to AND.
    symmetric: Vec<usize>,
}

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
    let token = |k: usize| &tokens[solid[k]].token;
    let is = |k: usize, w: &str| word_of(&tokens[solid[k]]).as_deref() == Some(w);
    let change = |k: usize, taken: usize, with: Option<Token>| {
        let (from, span) = (solid[k], tokens[solid[k]].span);
        let with = with.map(|t| TokenWithSpan::new(t, span));
        Edit {
            from,
            to: from + taken,
            with: with.into_iter().collect(),
        }
    };
    // What gets parentheses: from one place up to another.
    let (mut edits, mut pairs) = (vec![], vec![]);
    let mut around = vec![Open::default()];
    for (k, &at) in solid.iter().enumerate() {
        match &tokens[at].token {
            Token::LParen | Token::LBracket => {
                around.push(Open {
                    is_substring: k > 0 && is(k - 1, "substring") && token(k) == &Token::LParen,
                    ..Open::default()
                });
                continue;
            }
            Token::RParen | Token::RBracket => {
                let inner = around.pop().unwrap_or_default();
                pairs.extend(inner.variadic.iter().map(|from| (*from, k)));
                // One that closes nothing.
                if around.is_empty() {
                    around.push(Open::default());
                }
                continue;
            }
            _ => {}
        }
        let (Some(word), Some(here)) = (word_of(&tokens[at]), around.last_mut()) else {
            continue;
        };
        match &*word {
            "variadic" if k > 0 && matches!(token(k - 1), Token::LParen | Token::Comma) => {
                here.variadic.push(k + 1);
            }
            "symmetric" if k > 0 && is(k - 1, "between") => here.symmetric.push(k + 1),
            "and" => pairs.extend(here.symmetric.drain(..).map(|from| (from, k))),
            "preceding" | "following" => {
                let begins = |j: &usize| {
                    let after = ["range", "rows", "groups", "between", "and"];
                    matches!(token(*j), Token::SingleQuotedString(_))
                        && token(j + 1) == &Token::DoubleColon
                        && after.iter().any(|w| is(j - 1, w))
                };
                if let Some(from) = (k.saturating_sub(CAST).max(1)..k).rev().find(begins) {
                    edits.push(change(from, 0, Some(Token::LParen)));
                    edits.push(change(k, 0, Some(Token::RParen)));
                }
            }
            "similar" if here.is_substring && here.similar.is_none() => here.similar = Some(k),
            "escape" if !here.has_escape => {
                if let Some(similar) = here.similar {
                    edits.push(change(similar, 1, Some(Token::Comma)));
                    edits.push(change(k, 1, Some(Token::Comma)));
                    here.has_escape = true;
                }
            }
            "from" if k > 1 && is(k - 2, "trim") && token(k - 1) == &Token::LParen => {
                edits.push(change(k, 1, None));
            }
            "from"
                if k > 2
                    && is(k - 3, "trim")
                    && token(k - 2) == &Token::LParen
                    && ["leading", "trailing", "both"].iter().any(|w| is(k - 1, w)) =>
            {
                let blank = Token::SingleQuotedString(" ".into());
                edits.push(change(k, 0, Some(blank)));
            }
            _ => {}
        }
    }
    // A text that is read again has them.
    let closings = closings(&tokens, &solid);
    pairs.retain(|&(from, to)| closings[from] != Some(to - 1));
    // What closes stands before what opens in the same place.
    let close = |p: &(usize, usize)| change(p.1, 0, Some(Token::RParen));
    edits.extend(pairs.iter().map(close));
    let open = |p: &(usize, usize)| change(p.0, 0, Some(Token::LParen));
    edits.extend(pairs.iter().map(open));
    edit(tokens, edits)
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
