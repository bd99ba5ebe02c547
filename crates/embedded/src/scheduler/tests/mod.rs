//! The property of gangs (K2): placing on values agrees with trying everything, and in a cluster no part of one is ever
//! bound, whatever comes in which order and whenever the controllers are killed.

mod model;
mod whole;
