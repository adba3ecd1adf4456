//! canon: under construction.
