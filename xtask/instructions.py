#!/usr/bin/env python3
"""instructions.py LABEL BINARY PORT [STATEMENT...]: instructions that the server takes for each of ten statements, counted by callgrind.
The ten are prepared. Two of them come again as texts that are parsed, bound and planned each time: `point-simple`, `join-simple`.

Two runs of pgbench with one client, of 1,100 and of 100 statements: the difference by 1,000. Counted are the threads that ran sessions ("cores").
Needs valgrind and the programs of PostgreSQL (CANON_PG_BIN). The directory of the run stays for callgrind_annotate; its name is printed last.
"""
import sys,subprocess,os,time,glob,re,shutil,signal,tempfile,ctypes,struct
L,B,P=sys.argv[1:4]; only=sys.argv[4:]
D=tempfile.mkdtemp(prefix=f'canon-{L}-')
PG=os.environ.get('CANON_PG_BIN','/usr/lib/postgresql/15/bin')+'/'
S={
'point':'\\set aid random(1,100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;',
'range':'\\set aid random(1,99900)\nSELECT sum(abalance), count(*) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 99;',
'join':'SELECT b.bid, t.tbalance FROM pgbench_branches b JOIN pgbench_tellers t ON t.bid = b.bid ORDER BY t.tid LIMIT 5;',
'top':'\\set aid random(1,99900)\nSELECT aid, abalance FROM pgbench_accounts WHERE aid > :aid AND aid < :aid + 50 ORDER BY abalance DESC, aid LIMIT 10;',
'count':'SELECT count(*) FROM pgbench_tellers WHERE tbalance >= 0;',
'lock':'\\set aid random(1,100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid FOR UPDATE;',
'update':'\\set aid random(1,100000)\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;',
'insert':'\\set aid random(1,100000)\nINSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :aid, 7, CURRENT_TIMESTAMP);',
'conflict':'\\set k random(1,100)\nINSERT INTO k VALUES (:k, 1) ON CONFLICT (k) DO UPDATE SET v = k.v + 1;',
'delete':'\\set aid random(1,100000)\nDELETE FROM d WHERE aid = :aid;',
}
for k in ('point','join'): S[k+'-simple']=S[k]
env=dict(os.environ,PATH=PG+':'+os.environ['PATH'])
def sql(q): return subprocess.run([PG+'psql','-qAt','-h','127.0.0.1','-p',P,'-U','canon','canon','-c',q],capture_output=True,text=True)
def hide_vdso():
    """prctl(PR_GET_AUXV), which kernels have from 6.4 on, is EINVAL. By it a program finds the vDSO that valgrind has hidden from it, and reads where nothing is mapped.
    Valgrind itself answers for /proc/self/auxv, which is read then."""
    load,jump,give=0x20,0x15,6
    rules=[(load,0,0,0),(jump,0,3,157),(load,0,0,16),(jump,0,1,0x41555856),(give,0,0,0x50000|22),(give,0,0,0x7fff0000)]
    code=ctypes.create_string_buffer(b''.join(struct.pack('HBBI',*r) for r in rules))
    filter=struct.pack('HxxxxxxQ',len(rules),ctypes.addressof(code))
    c=ctypes.CDLL(None,use_errno=True)
    # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP with a filter.
    if c.prctl(38,1,0,0,0) or c.prctl(22,2,filter,0,0): raise OSError(ctypes.get_errno(),'seccomp')
def start(pre):
    p=subprocess.Popen(pre+[B,'start','--data',D+'/data','--listen','127.0.0.1:'+P],stdout=open(D+'/log','a'),stderr=subprocess.STDOUT,preexec_fn=hide_vdso if pre else None)
    for _ in range(400):
        if sql('select 1').returncode==0: return p
        time.sleep(.3)
    sys.exit('no start')
def stop(p): p.send_signal(signal.SIGTERM); p.wait()
s=start([])
subprocess.run([PG+'pgbench','-q','-i','-s','1','-h','127.0.0.1','-p',P,'-U','canon','canon'],capture_output=True)
r=sql("create table k (k int primary key, v int); create table d (aid int primary key, x int); insert into d select g, g from generate_series(1,100000) g"); assert r.returncode==0,r.stderr
stop(s)
s=start(['nice','-n','10','valgrind','--tool=callgrind','--separate-threads=yes','--callgrind-out-file='+D+'/out'])
def pgb(k,n):
    f=D+f'/{k}.sql'; open(f,'w').write(S[k])
    r=subprocess.run([PG+'pgbench','-n','-M','simple' if k.endswith('-simple') else 'prepared','-c','1','-t',str(n),'-f',f,'--random-seed=7','-h','127.0.0.1','-p',P,'-U','canon','canon'],capture_output=True,text=True)
    if r.returncode: print(r.stderr)
def dump(): 
    before=set(glob.glob(D+'/out*'))
    subprocess.run(['callgrind_control','-d',str(s.pid)],capture_output=True)
    time.sleep(.3)
    d={}
    for f in set(glob.glob(D+'/out*'))-before:
        m=re.search(r'out\.\d+-(\d+)$',f)
        if not m: continue
        t=open(f,errors='replace').read()
        c=re.search(r'^(?:summary|totals): (\d+)',t,re.M)
        d[m.group(1)]=(int(c.group(1)) if c else 0,f)
    return d
for k in S:
    if only and k not in only: continue
    pgb(k,100); dump(); pgb(k,100); a=dump(); t0=time.time(); pgb(k,1100); w=time.time()-t0; b=dump()
    rows=sorted(((b.get(t,(0,0))[0]-a.get(t,(0,0))[0])/1000,t) for t in set(a)|set(b))[::-1]
    cores={t for x in (a,b) for t,(c,f) in x.items() if 'connections/connection.rs' in open(f,errors='replace').read()}
    fg=(sum(v for v,t in rows if t in cores),'+'.join(sorted(cores)))
    print(L,k,'sum %d'%sum(r[0] for r in rows),'cores %d (threads %s)'%fg,'others',' '.join('%s:%d'%(t,v) for v,t in rows if t not in cores and abs(v)>20),'wall %.1f'%w,flush=True)
    os.makedirs(D+'/'+k,exist_ok=True)
    for n,x in (('a',a),('b',b)):
        for t,(c,f) in x.items(): shutil.move(f,f'{D}/{k}/{n}-{t}')
    for f in glob.glob(D+'/out.*'): os.unlink(f)
stop(s)
print('kept:',D)
