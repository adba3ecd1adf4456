//! The tokens of a statement, read one after another: what [`super`] and COPY's grammar are written with.

use super::super::parse::Fault;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens of a statement without blanks, read one after another.
pub struct Words<'a> {
    all: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Words<'a> {
    pub fn new(all: &'a [TokenWithSpan]) -> Words<'a> {
        let mut w = Words { all, at: 0 };
        w.skip();
        w
    }

    fn skip(&mut self) {
        while let Some(t) = self.all.get(self.at) {
            match t.token {
                Token::Whitespace(_) | Token::EOF => self.at += 1,
                _ => break,
            }
        }
    }

    pub fn peek(&self) -> Option<&'a Token> {
        self.all.get(self.at).map(|t| &t.token)
    }

    pub fn next(&mut self) -> Option<&'a Token> {
        let t = self.peek()?;
        self.at += 1;
        self.skip();
        Some(t)
    }

    /// The tokens not read yet.
    pub fn rest(&self) -> &'a [TokenWithSpan] {
        &self.all[self.at.min(self.all.len())..]
    }

    /// Skips `n` tokens, blanks counted.
    pub fn skip_to(&mut self, n: usize) {
        self.at += n;
        self.skip();
    }

    /// Skips to the end.
    pub fn finish(&mut self) {
        self.at = self.all.len();
    }

    /// A syntax error at the next token.
    pub fn fault(&self) -> Fault {
        Fault::At(self.all.get(self.at).cloned())
    }

    /// A syntax error at the token before.
    pub fn back(&self) -> Fault {
        let blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
        Fault::At(
            self.all[..self.at]
                .iter()
                .rev()
                .find(|t| !blank(t))
                .cloned(),
        )
    }

    pub fn end(&self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault()),
        }
    }

    /// The next token if it is a word without quotes, in lower case.
    pub fn peek_word(&self) -> Option<String> {
        match self.peek()? {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    pub fn word(&mut self) -> Result<String, Fault> {
        let w = self.peek_word().ok_or_else(|| self.fault())?;
        self.next();
        Ok(w)
    }

    /// Takes the next word if it is one of these.
    pub fn opt(&mut self, words: &[&str]) -> bool {
        let hit = self
            .peek_word()
            .is_some_and(|w| words.contains(&w.as_str()));
        if hit {
            self.next();
        }
        hit
    }

    pub fn opt_token(&mut self, t: &Token) -> bool {
        let hit = self.peek() == Some(t);
        if hit {
            self.next();
        }
        hit
    }

    pub fn expect(&mut self, word: &str) -> Result<(), Fault> {
        if self.opt(&[word]) {
            Ok(())
        } else {
            Err(self.fault())
        }
    }

    pub fn expect_token(&mut self, t: &Token) -> Result<(), Fault> {
        if self.opt_token(t) {
            Ok(())
        } else {
            Err(self.fault())
        }
    }

    /// An identifier: folded to lower case unless quoted.
    pub fn name(&mut self) -> Result<String, Fault> {
        let Some(Token::Word(w)) = self.peek() else {
            return Err(self.fault());
        };
        self.next();
        Ok(match w.quote_style {
            Some(_) => w.value.clone(),
            None => w.value.to_lowercase(),
        })
    }

    /// A string literal.
    pub fn string(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => {
                self.next();
                Ok(s.clone())
            }
            Some(Token::DollarQuotedString(s)) => {
                self.next();
                Ok(s.value.clone())
            }
            _ => Err(self.fault()),
        }
    }

    /// A whole number, perhaps with a sign.
    pub fn integer(&mut self) -> Result<i64, Fault> {
        let negative = self.opt_token(&Token::Minus);
        if !negative {
            self.opt_token(&Token::Plus);
        }
        match self.peek() {
            Some(Token::Number(n, _)) => {
                let n: i64 = n.parse().map_err(|_| self.fault())?;
                self.next();
                Ok(if negative { -n } else { n })
            }
            _ => Err(self.fault()),
        }
    }
}

/// Tokens as text again.
pub fn text_of(tokens: &[TokenWithSpan]) -> String {
    let mut s = String::new();
    for t in tokens {
        if t.token != Token::EOF {
            s.push_str(&crate::printed::spelled(&t.token));
        }
    }
    s.trim().to_owned()
}
