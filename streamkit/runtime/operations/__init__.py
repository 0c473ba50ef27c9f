"""Operations on an application from outside: lag, reset, replay, state of a stopped application."""
