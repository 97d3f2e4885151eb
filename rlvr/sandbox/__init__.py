"""Run one untrusted program, confined.

zygote_client.py   asks for a program to be run, and waits for its end
guest/zygote.py    forks a process for each program
guest/program.py   runs a program there; C++ is run by guest/launcher.cpp
guest/confinement.py, seccomp.py   what the process may not do
limits.py          time, memory and output of a program
compiler.py, compiler_cache.py     programs that must be compiled
capabilities.py    how strong the confinement of this machine is
"""
