# cmake -DFROM=FILE.ptx -DTO=FILE.inc -P QuotePtx.cmake: a text as a string literal of C++, for #include.
file(READ ${FROM} text)
file(WRITE ${TO} "R\"ptx(${text})ptx\"\n")
