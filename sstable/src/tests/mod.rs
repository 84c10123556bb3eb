//! Tests of several modules together.

mod cache_popularity;
